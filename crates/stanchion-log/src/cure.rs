//! Cures: an operator's next step after a system call that the kernel refused.

use std::io;
use std::path::Path;

use rustix::io::Errno;
use stanchion_sys::call;

/// The error, with the operator's next step if one is known.
pub fn told(error: &io::Error) -> String {
    match of(error) {
        Some(cure) => format!("{error}; {cure}"),
        None => error.to_string(),
    }
}

/// The file, why it cannot be opened or made, and what to do about that.
pub fn told_of_file(path: &Path, error: &io::Error) -> String {
    let shown = path.display();
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let missing = absolute.parent().filter(|directory| !directory.exists());
    match (error.kind(), missing) {
        (io::ErrorKind::NotFound, Some(directory)) => {
            let directory = directory.display();
            format!(
                "{shown}: {error}; make the directory {directory}, for the user that the server runs as"
            )
        }
        (io::ErrorKind::PermissionDenied, _)
            if call::number(error) == Some(Errno::ACCESS.raw_os_error()) =>
        {
            format!("{shown}: {error}; let the user that the server runs as write there")
        }
        _ => format!("{shown}: {}", told(error)),
    }
}

/// The operator's next step after the error, if one is known.
pub fn of(error: &io::Error) -> Option<String> {
    let errno = Errno::from_raw_os_error(call::number(error)?);
    let cure = match errno {
        Errno::PERM | Errno::NOSYS => {
            let call = call::name(error)?;
            let forbidden = of_forbidden(call).filter(|_| errno == Errno::PERM);
            if let Some(cure) = forbidden {
                return Some(cure.to_owned());
            }
            return Some(format!(
                "a filter of system calls refuses {call}, or the kernel has no such call: allow it in the seccomp profile \
                 of the container, or in SystemCallFilter= of the unit"
            ));
        }
        Errno::MFILE => "raise the limit of open files (ulimit -n, LimitNOFILE= of the unit)",
        Errno::NFILE => "the whole system has too many files open: raise the sysctl fs.file-max",
        Errno::NOMEM => {
            "give the server more memory, or fewer workers, threads and --worker-concurrency"
        }
        Errno::AGAIN => {
            "raise the limit of processes (ulimit -u, TasksMax= of the unit, pids limit of the container)"
        }
        Errno::ROFS => "that file system is read-only: mount it for writing, or choose another one",
        Errno::NOSPC => "make room on that file system, or choose another one",
        _ => return None,
    };
    Some(cure.to_owned())
}

/// The operator's next step after a call that kernels often forbid by themselves, without any filter.
fn of_forbidden(call: &str) -> Option<&'static str> {
    match call {
        "unlinkat" | "renameat" => Some(
            "another user's file is in the way, in a directory where only its owner may remove it (a sticky one such as /tmp): remove \
             it, or name a path in a directory of the server's own",
        ),
        "fchownat" => Some("only root, or CAP_CHOWN, gives a file to another user"),
        "setgroups" | "setresgid" | "setresuid" => Some(
            "to become another user takes CAP_SETGID and CAP_SETUID: let the container or the unit have them, or start the server as \
             that user, without --user and --group",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use stanchion_sys::call::named;

    use super::*;

    #[test]
    fn a_refused_call_is_named_with_what_to_do() {
        let error = named("memfd_create", Errno::PERM);
        assert_eq!(
            told(&error),
            "memfd_create: Operation not permitted (os error 1); a filter of system calls refuses memfd_create, or the kernel \
             has no such call: allow it in the seccomp profile of the container, or in SystemCallFilter= of the unit"
        );
        let error = named("eventfd2", Errno::MFILE);
        assert!(
            told(&error)
                .ends_with("; raise the limit of open files (ulimit -n, LimitNOFILE= of the unit)")
        );
    }

    #[test]
    fn what_kernels_forbid_without_a_filter_is_put_down_to_none() {
        for (call, cure) in [
            ("unlinkat", "another user's file is in the way"),
            ("renameat", "another user's file is in the way"),
            ("fchownat", "CAP_CHOWN"),
            ("setgroups", "CAP_SETGID"),
            ("setresuid", "CAP_SETUID"),
        ] {
            let told = told(&named(call, Errno::PERM));
            assert!(told.contains(cure) && !told.contains("filter"), "{told}");
        }
        let absent = told(&named("renameat", Errno::NOSYS));
        assert!(
            absent.contains("a filter of system calls refuses renameat"),
            "{absent}"
        );
    }

    #[test]
    fn a_file_is_named_with_what_it_lacks() {
        let told = |path: &str, errno: Errno| told_of_file(Path::new(path), &errno.into());
        assert_eq!(
            told("/nowhere/of/ours/log", Errno::NOENT),
            "/nowhere/of/ours/log: No such file or directory (os error 2); make the directory /nowhere/of/ours, for the user \
             that the server runs as"
        );
        assert!(
            told("/tmp/log", Errno::ACCESS)
                .ends_with("let the user that the server runs as write there")
        );
        assert_eq!(
            told("/tmp/log", Errno::ISDIR),
            "/tmp/log: Is a directory (os error 21)"
        );
    }

    #[test]
    fn what_has_no_known_cure_stands_alone() {
        for error in [
            Errno::PERM.into(),
            Errno::BADF.into(),
            io::Error::other("ours"),
        ] {
            assert_eq!(told(&error), error.to_string());
        }
    }
}
