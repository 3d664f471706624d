//! The stacks of a worker as the log shows them: those of the threads that have seats, and how many others there are.

use std::fmt::Write as _;

/// How Python's faulthandler begins the stack of a thread, but for `Current thread` of the one that the signal has found.
const THREAD: [&str; 2] = ["Thread 0x", "Current thread 0x"];
/// How the table of seats begins that stands behind them (`stanchion_sys::signal::dump`).
const SEAT: &str = "seat ";
const IS_THREAD: &str = " is thread 0x";

/// Seats in their order, each with its stack; then a count of the other threads. Without a table of seats it is all there is: an event
/// loop has none.
pub(super) fn of_seats(all: &str) -> String {
    let seats: Vec<_> = all.lines().filter_map(seat).collect();
    if seats.is_empty() {
        return all.to_owned();
    }
    let stacks = stacks(all);
    let mut shown = String::new();
    for (line, thread) in &seats {
        let stack = stacks.iter().find(|(other, _)| other == thread);
        let frames = stack.map_or("", |(_, frames)| frames);
        // Nothing fails to be written to a text.
        let _ = writeln!(shown, "{line}\n{}", frames.trim_end());
    }
    let is_seated = |thread: &str| seats.iter().any(|(_, seated)| *seated == thread);
    let others = stacks
        .iter()
        .filter(|(thread, _)| !is_seated(thread))
        .count();
    if others > 0 {
        let threads = if others == 1 {
            "thread is"
        } else {
            "threads are"
        };
        let _ = writeln!(shown, "{others} other {threads} in `stanchion ctl dump`");
    }
    shown.trim_end().to_owned()
}

/// The line and its thread.
fn seat(line: &str) -> Option<(&str, &str)> {
    let (_, thread) = line.strip_prefix(SEAT)?.split_once(IS_THREAD)?;
    Some((line, thread.trim_start_matches('0')))
}

/// Each thread with its frames.
fn stacks(all: &str) -> Vec<(&str, &str)> {
    let mut stacks = Vec::new();
    for block in all.split("\n\n") {
        let block = block.trim_start_matches('\n');
        let found = THREAD.iter().find_map(|start| block.strip_prefix(start));
        let Some((thread, frames)) = found.and_then(|rest| rest.split_once('\n')) else {
            continue;
        };
        let digits = thread.find(|digit: char| !digit.is_ascii_hexdigit());
        let thread = thread[..digits.unwrap_or(thread.len())].trim_start_matches('0');
        // The table of seats follows the last one at once.
        let end = frames.find("\nseat ").unwrap_or(frames.len());
        stacks.push((thread, &frames[..end]));
    }
    stacks
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "Thread 0x00007f01 (most recent call first):
  File \"pool.py\", line 1 in idle

Thread 0x00007f02 (most recent call first):
  File \"app.py\", line 2 in pay
  File \"app.py\", line 9 in app

Thread 0x00007f03 (most recent call first):
  File \"app.py\", line 3 in other

Current thread 0x00007f04 (most recent call first):
  File \"main.py\", line 4 in wait
seat 0 is thread 0x0000000000007f03
seat 1 is thread 0x0000000000007f02
";

    #[test]
    fn the_seats_come_first_and_the_others_are_counted() {
        let expected = "seat 0 is thread 0x0000000000007f03
  File \"app.py\", line 3 in other
seat 1 is thread 0x0000000000007f02
  File \"app.py\", line 2 in pay
  File \"app.py\", line 9 in app
2 other threads are in `stanchion ctl dump`";
        assert_eq!(of_seats(DUMP), expected);
    }

    #[test]
    fn what_has_no_table_of_seats_is_all_there() {
        let (all, _) = DUMP.split_once("seat 0").unwrap();
        assert_eq!(of_seats(all), all);
        assert_eq!(of_seats("they cannot be read"), "they cannot be read");
    }

    #[test]
    fn a_seat_whose_stack_was_not_written_is_named_all_the_same() {
        let text = "seat 0 is thread 0x0000000000007f03";
        assert_eq!(of_seats(text), text);
    }
}
