//! Errors that name the system call that the kernel refused. Without the name, a filter of system calls in a container, a
//! limit and a wrong path all read alike.

use std::error::Error;
use std::{fmt, io};

/// A system call that the kernel refused, and its error.
#[derive(Debug)]
struct Refused {
    call: &'static str,
    error: io::Error,
}

/// Adds the name of the system call to the error of a result.
pub trait InCall<T> {
    /// The same result; its error names `call`, and keeps its kind. [`number`] gives its number.
    ///
    /// # Errors
    /// The call's own. "Would block" and "interrupted" are answers and no refusals: they stay as they are, and cost no
    /// allocation.
    fn in_call(self, call: &'static str) -> io::Result<T>;
}

impl<T, E: Into<io::Error>> InCall<T> for Result<T, E> {
    fn in_call(self, call: &'static str) -> io::Result<T> {
        self.map_err(|error| named(call, error))
    }
}

/// The result of a call of the C library, which is -1 if the kernel has refused it (errno(3)).
pub(crate) fn checked<R: From<i8> + PartialEq>(call: &'static str, result: R) -> io::Result<R> {
    if result == R::from(-1) {
        return Err(named(call, io::Error::last_os_error()));
    }
    Ok(result)
}

/// Makes the call again as long as a signal interrupts it.
pub(crate) fn retry<T>(
    name: &'static str,
    mut call: impl FnMut() -> rustix::io::Result<T>,
) -> io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.in_call(name),
        }
    }
}

/// The number of the error (errno(3)), whether or not a call is named with it.
pub fn number(error: &io::Error) -> Option<i32> {
    refused(error).map_or(error.raw_os_error(), |refused| refused.error.raw_os_error())
}

/// The call that was refused, if the error names one.
pub fn name(error: &io::Error) -> Option<&'static str> {
    refused(error).map(|refused| refused.call)
}

/// An error of this call, with its name.
pub fn named(call: &'static str, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    let is_answer = matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    );
    if is_answer {
        return error;
    }
    io::Error::new(error.kind(), Refused { call, error })
}

fn refused(error: &io::Error) -> Option<&Refused> {
    error.get_ref()?.downcast_ref()
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.error)
    }
}

impl Error for Refused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn an_error_names_its_call_and_keeps_its_kind_and_number() {
        let given: Result<(), _> = Err(Errno::PERM);
        let error = given.in_call("memfd_create").unwrap_err();
        assert_eq!(
            error.to_string(),
            "memfd_create: Operation not permitted (os error 1)"
        );
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(
            (name(&error), number(&error)),
            (Some("memfd_create"), Some(libc::EPERM))
        );
        let bare = io::Error::from(Errno::PERM);
        assert_eq!((name(&bare), number(&bare)), (None, Some(libc::EPERM)));
        assert_eq!(number(&io::Error::other("ours")), None);
    }

    #[test]
    fn what_only_says_later_stays_as_it_is() {
        for errno in [Errno::AGAIN, Errno::INTR] {
            let given: Result<(), _> = Err(errno);
            let error = given.in_call("recvmsg").unwrap_err();
            assert_eq!(
                (error.raw_os_error(), name(&error)),
                (Some(errno.raw_os_error()), None)
            );
        }
    }
}
