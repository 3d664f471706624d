//! Threads that the operator's code has started in the master. There must be none when it forks: a
//! fork takes no other thread along, and a lock that one of them holds stays held for ever.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use stanchion_sys::process;

use crate::host::Host;

/// What a thread that is about to end is given for it: whoever joined it in Python goes on before the
/// kernel is through with it.
const ENDING: Duration = Duration::from_secs(1);
/// How often it is looked for, as nobody tells when somebody else's thread has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Of so many threads at most the names are told.
const NAMED_MAX: usize = 16;

/// The threads there are, but for ours.
pub(crate) fn present() -> io::Result<Vec<i32>> {
    let threads = process::other_threads()?;
    Ok(threads.into_iter().map(|(id, _)| id).collect())
}

/// Waits a moment for other threads than ours and `known` to end. Gives the names of those that stay,
/// if any do.
pub(crate) fn staying(
    host: &mut (impl Host + ?Sized),
    known: &[i32],
) -> io::Result<Option<String>> {
    let begun = Instant::now();
    loop {
        let mut threads = process::other_threads()?;
        threads.retain(|(id, _)| !known.contains(id));
        if threads.is_empty() {
            return Ok(None);
        }
        if begun.elapsed() >= ENDING {
            return Ok(Some(told(&threads, &host.thread_names())));
        }
        host.let_threads_run(LOOK_AGAIN);
    }
}

/// Refuses unless this process has one thread, or will have in a moment. The problem names the others.
pub(crate) fn refuse(host: &mut (impl Host + ?Sized)) -> Result<(), String> {
    match staying(host, &[]) {
        Ok(None) => Ok(()),
        Ok(Some(threads)) => Err(threads),
        Err(error) => Err(format!("threads that cannot be counted: {error}")),
    }
}

/// Likewise before anything is forked. The problem says what to do.
pub fn refuse_at_start(host: &mut (impl Host + ?Sized)) -> Result<(), String> {
    check_proc()?;
    refuse(host).map_err(|threads| {
        format!(
            "besides its own thread, the master has {threads}. It forks, which takes no other thread along: do not start \
             threads in the config file or in what it imports, but in post_fork or post_worker_init. If these start none, \
             something else starts threads in each Python process, such as sitecustomize"
        )
    })
}

/// Before each fork the threads are counted, which takes proc(5). Without it every fork would be refused, and
/// clients would wait at an open socket for a server that cannot come.
fn check_proc() -> Result<(), String> {
    process::thread_count().map(drop).map_err(|error| {
        format!(
            "/proc is not mounted, or is not proc(5): {} cannot be read: {error}. Mount it where the server \
             runs: mount -t proc proc /proc",
            process::TASKS
        )
    })
}

/// Such as `2 threads: "flush"; "native", not of Python`: what its language calls a thread, and else the kernel.
fn told(threads: &[(i32, String)], names: &HashMap<i32, String>) -> String {
    let name = |(id, comm): &(i32, String)| match names.get(id) {
        Some(name) => format!("{name:?}"),
        None => format!("{comm:?}, not of Python"),
    };
    let listed: Vec<_> = threads.iter().take(NAMED_MAX).map(name).collect();
    let count = threads.len();
    let (noun, more) = (
        if count == 1 { "thread" } else { "threads" },
        if count > NAMED_MAX { " and more" } else { "" },
    );
    format!("{count} {noun}: {}{more}", listed.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_called_what_its_language_calls_it() {
        let threads = [(7, "python3".to_owned()), (8, "native\n".to_owned())];
        let names = HashMap::from([(7, "Thread-1 (flush)".to_owned())]);
        assert_eq!(
            told(&threads, &names),
            r#"2 threads: "Thread-1 (flush)"; "native\n", not of Python"#
        );
        assert_eq!(
            told(&threads[..1], &names),
            r#"1 thread: "Thread-1 (flush)""#
        );
    }

    #[test]
    fn of_many_some_are_named() {
        let threads: Vec<_> = (0..17).map(|id| (id, "x".to_owned())).collect();
        let told = told(&threads, &HashMap::new());
        assert!(told.starts_with("17 threads: ") && told.ends_with(" and more"));
        assert_eq!(told.matches("\"x\"").count(), NAMED_MAX);
    }
}
