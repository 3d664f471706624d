//! Threads that the operator's code has started in the master. There must be none when it forks: a
//! fork takes no other thread along, and a lock that one of them holds stays held for ever. `OpenBLAS` ends its threads before a
//! fork, and starts them when it next computes, so one fork in vain leaves the master without them.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stanchion_sys::fork_handlers;
use stanchion_sys::process;
use stanchion_sys::thread_start::Origins;

use crate::host::Host;
use crate::sound_threads::is_sound;

/// A thread that is about to end gets so long for it: a Python thread that joins it goes on before the kernel is through with it.
const ENDING: Duration = Duration::from_secs(1);
/// The handlers that libraries have for forks get so long.
const HANDLERS: Duration = Duration::from_secs(10);
/// How often the threads are looked at, as nothing reports when a thread of other code has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// At most so many threads are named.
const NAMED_MAX: usize = 16;

/// The threads there are, but for ours.
pub(crate) fn present() -> io::Result<Vec<i32>> {
    let threads = process::other_threads()?;
    Ok(threads.into_iter().map(|(id, _)| id).collect())
}

/// Has those end that their library ends before a fork, and waits a moment for other threads than ours and `known` to end.
/// Gives the names of those that stay, if any do.
pub(crate) fn staying(
    host: &mut (impl Host + ?Sized),
    known: &[i32],
) -> io::Result<Option<String>> {
    let mut may_fork = true;
    wait_but_for(host, |host, threads| {
        threads.retain(|(id, _)| !known.contains(id));
        if may_fork && are_sound(host, threads)?.contains(&true) {
            may_fork = false;
            fork_handlers::run(HANDLERS)?;
            *threads = process::other_threads()?;
            threads.retain(|(id, _)| !known.contains(id));
        }
        Ok(())
    })
}

/// The same for threads that are missed after a fork, which those of some libraries are not.
pub(crate) fn missed_after_a_fork(host: &mut (impl Host + ?Sized)) -> io::Result<Option<String>> {
    wait_but_for(host, |host, threads| {
        let mut are_sound = are_sound(host, threads)?.into_iter();
        threads.retain(|_| are_sound.next() == Some(false));
        Ok(())
    })
}

/// Of each thread, whether it is no matter for a fork.
fn are_sound(host: &mut (impl Host + ?Sized), threads: &Threads) -> io::Result<Vec<bool>> {
    if threads.is_empty() {
        return Ok(Vec::new());
    }
    let named = named(threads, &host.thread_names())?;
    Ok(named.iter().map(Named::is_sound).collect())
}

/// Other threads than ours: their ids, and the names that the kernel has for them.
type Threads = Vec<(i32, String)>;

/// Waits a moment for threads to end but for those that `leave_out` takes away. Gives the names of those that stay, if any do.
fn wait_but_for<H: Host + ?Sized>(
    host: &mut H,
    mut leave_out: impl FnMut(&mut H, &mut Threads) -> io::Result<()>,
) -> io::Result<Option<String>> {
    let begun = Instant::now();
    loop {
        let mut threads = process::other_threads()?;
        leave_out(host, &mut threads)?;
        if threads.is_empty() {
            return Ok(None);
        }
        if begun.elapsed() >= ENDING {
            return named(&threads, &host.thread_names()).map(|threads| Some(told(&threads)));
        }
        host.let_threads_run(LOOK_AGAIN);
    }
}

/// A thread, as far as it is known.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    /// Its name in its language.
    OfLanguage(String),
    /// Its id, the file whose code it runs, if that can be seen, and the name that it was given, if any: a thread has the name of the thread that has
    /// started it, and our processes are given names by us.
    Native {
        id: i32,
        file: Option<PathBuf>,
        name: Option<String>,
    },
}

impl Named {
    fn is_sound(&self) -> bool {
        match self {
            Self::OfLanguage(_) => false,
            Self::Native { file, name, .. } => {
                is_sound(name.as_deref().unwrap_or_default(), file.as_deref())
            }
        }
    }
}

fn named(threads: &Threads, names: &HashMap<i32, String>) -> io::Result<Vec<Named>> {
    let origins = Origins::now();
    let inherited = process::thread_name()?;
    let threads = threads.iter().map(|(id, name)| match names.get(id) {
        Some(name) => Named::OfLanguage(name.clone()),
        None => Named::Native {
            id: *id,
            file: origins.of(*id).map(Path::to_owned),
            name: (*name != inherited).then(|| name.clone()),
        },
    });
    Ok(threads.collect())
}

/// Refuses unless this process has one thread, or will have in a moment. The problem names the others.
pub(crate) fn refuse(host: &mut (impl Host + ?Sized)) -> Result<(), String> {
    match staying(host, &[]) {
        Ok(None) => Ok(()),
        Ok(Some(threads)) => Err(threads),
        Err(error) => Err(format!("threads that cannot be counted: {error}")),
    }
}

/// The same, before anything is forked. The problem says what to do.
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

/// Such as `2 threads: "flush"; 8109 of libother.so ("pump")`: what its language calls a thread, and else whose code it runs.
fn told(threads: &[Named]) -> String {
    let listed: Vec<_> = threads.iter().take(NAMED_MAX).map(Named::told).collect();
    let count = threads.len();
    let (noun, more) = (
        if count == 1 { "thread" } else { "threads" },
        if count > NAMED_MAX { " and more" } else { "" },
    );
    format!("{count} {noun}: {}{more}", listed.join("; "))
}

impl Named {
    fn told(&self) -> String {
        match self {
            Self::OfLanguage(name) => format!("{name:?}"),
            Self::Native { id, file, name } => {
                let file = file.as_deref().and_then(Path::file_name);
                let whose = match file {
                    Some(file) => format!("{id} of {}", file.to_string_lossy().escape_debug()),
                    None => format!("{id}, not of Python"),
                };
                match name {
                    Some(name) => format!("{whose} ({name:?})"),
                    None => whose,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(id: i32, file: Option<&str>, name: Option<&str>) -> Named {
        Named::Native {
            id,
            file: file.map(PathBuf::from),
            name: name.map(str::to_owned),
        }
    }

    #[test]
    fn a_thread_is_called_what_its_language_calls_it_and_else_by_whose_code_it_runs() {
        let threads = [
            Named::OfLanguage("Thread-1 (flush)".to_owned()),
            native(8, Some("/usr/lib/libother.so.1"), Some("pump\n")),
            native(9, Some("/usr/lib/libother.so.1"), None),
            native(10, None, Some("rdk:main")),
            native(11, None, None),
        ];
        assert_eq!(
            told(&threads),
            r#"5 threads: "Thread-1 (flush)"; 8 of libother.so.1 ("pump\n"); 9 of libother.so.1; 10, not of Python ("rdk:main"); 11, not of Python"#
        );
        assert_eq!(told(&threads[..1]), r#"1 thread: "Thread-1 (flush)""#);
    }

    #[test]
    fn of_many_some_are_named() {
        let threads: Vec<_> = (0..17).map(|id| native(id, None, None)).collect();
        let told = told(&threads);
        assert!(told.starts_with("17 threads: ") && told.ends_with(" and more"));
        assert_eq!(told.matches("not of Python").count(), NAMED_MAX);
    }
}
