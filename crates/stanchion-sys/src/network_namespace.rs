//! Looking into another network namespace: `network_namespaces(7)`.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Calls `look` in a thread that has entered the namespace of `link`, such as `/proc/PID/ns/net`, and returns its
/// result. The caller's own thread stays where it is: setns(2) moves one thread.
///
/// In there `/proc/sys/net` and `/proc/thread-self/net` are those of that namespace.
pub fn inside<T: Send>(link: &Path, look: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let link = File::open(link)?;
    thread::scope(|scope| {
        let entered = scope.spawn(|| {
            move_into_link_name_space(link.as_fd(), Some(LinkNameSpaceType::Network))?;
            look()
        });
        entered
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::read_link;

    use super::*;

    #[test]
    fn what_is_no_network_namespace_is_refused() {
        let looked = inside(Path::new("/proc/self/ns/mnt"), || Ok(()));
        // setns(2) fails with EINVAL for another kind of namespace, for root too.
        assert_eq!(looked.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        let looked = inside(Path::new("/proc/self/ns/none"), || Ok(()));
        assert_eq!(looked.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_callers_thread_stays_where_it_is() {
        let here = || read_link("/proc/thread-self/ns/net");
        let before = here().unwrap();
        match inside(Path::new("/proc/thread-self/ns/net"), here) {
            Ok(there) => assert_eq!(there, before),
            // A process needs CAP_SYS_ADMIN to enter even its own.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
        }
        assert_eq!(here().unwrap(), before);
    }
}
