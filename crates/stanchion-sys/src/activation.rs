//! Sockets that a service manager opened for us (`sd_listen_fds(3)`, systemd.socket(5)).

use std::os::fd::RawFd;

use crate::environment::{self, number};
use crate::process;

/// The first passed descriptor (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;
/// The most descriptors that this process takes over.
const PASSED_MAX: i32 = 1_024;

/// A descriptor that the service manager passed, and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The descriptor.
    pub fd: RawFd,
    /// `FileDescriptorName=` of the socket unit, which is the unit's own name if not set.
    pub name: Option<String>,
}

/// The content of the variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activation {
    /// The descriptors passed to this process, in order; usually none.
    pub passed: Vec<Passed>,
    /// Another process to which the variables say that descriptors were passed: a predecessor that did not clean up, or a
    /// shell between the service manager and us.
    pub for_another: Option<i32>,
}

/// The descriptors that a service manager passed to this process. Removes the variables, so that no child of ours takes the
/// descriptors for its own.
///
/// For the start of a process only, before it has a second thread. The error names the variable that makes no sense.
pub fn take() -> Result<Activation, String> {
    let [pid, count, names] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"].map(environment::take);
    // Newer service managers also set this, to identify the process. LISTEN_PID is enough for us.
    let _ = environment::take("LISTEN_PIDFDID");
    read(
        process::pid(),
        pid.as_deref(),
        count.as_deref(),
        names.as_deref(),
    )
}

fn read(
    own: i32,
    pid: Option<&str>,
    count: Option<&str>,
    names: Option<&str>,
) -> Result<Activation, String> {
    let (Some(pid), Some(count)) = (pid, count) else {
        return Ok(Activation::default());
    };
    let pid = number("LISTEN_PID", pid)?;
    if pid != own {
        return Ok(Activation {
            passed: Vec::new(),
            for_another: Some(pid),
        });
    }
    let count: i32 = number("LISTEN_FDS", count)?;
    if !(0..=PASSED_MAX).contains(&count) {
        return Err(format!(
            "LISTEN_FDS is {count}, which is not from 0 to {PASSED_MAX}"
        ));
    }
    let mut names = names
        .filter(|names| !names.is_empty())
        .map(|names| names.split(':'));
    let passed = (FIRST..FIRST + count).map(|fd| Passed {
        fd,
        name: names
            .as_mut()
            .and_then(Iterator::next)
            .map(ToOwned::to_owned),
    });
    Ok(Activation {
        passed: passed.collect(),
        for_another: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(fd: RawFd, name: Option<&str>) -> Passed {
        Passed {
            fd,
            name: name.map(ToOwned::to_owned),
        }
    }

    #[test]
    fn what_is_meant_for_us_is_taken() {
        let web = passed(3, Some("web"));
        for (pid, count, names, taken) in [
            (None, None, None, vec![]),
            (Some("7"), None, None, vec![]),
            (None, Some("1"), None, vec![]),
            (Some("7"), Some("0"), None, vec![]),
            (Some("7"), Some("1"), None, vec![passed(3, None)]),
            (Some("7"), Some("1"), Some(""), vec![passed(3, None)]),
            (Some("7"), Some("1"), Some("web"), vec![web.clone()]),
            (
                Some("7"),
                Some("3"),
                Some("web:api"),
                vec![web, passed(4, Some("api")), passed(5, None)],
            ),
        ] {
            let read = read(7, pid, count, names).expect("it makes sense");
            assert_eq!(read.passed, taken, "{pid:?} {count:?}");
            assert_eq!(read.for_another, None);
        }
        let others = read(7, Some("8"), Some("1"), None).expect("it makes sense");
        assert_eq!((others.passed, others.for_another), (vec![], Some(8)));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (pid, count, part) in [
            ("x", "1", "LISTEN_PID is 'x'"),
            ("7", "", "LISTEN_FDS is ''"),
            ("7", "-1", "not from 0 to 1024"),
            ("7", "1025", "not from 0 to 1024"),
            ("7", "99999999999", "which is no number"),
        ] {
            let error = read(7, Some(pid), Some(count), None).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
    }
}
