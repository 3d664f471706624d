//! Users and groups by name or number (passwd(5), group(5), or wherever nsswitch.conf(5) says).

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;

/// The largest entry to read. The entry of a group holds every member's name.
const ENTRY_BYTES_MAX: usize = 1 << 20;
/// The most groups a user may be in (`NGROUPS_MAX` in getgroups(2)).
const GROUPS_MAX: usize = 65_536;

/// A user of the password database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    /// The name.
    pub(crate) name: String,
    /// The number.
    pub(crate) uid: u32,
    /// The number of the primary group.
    pub(crate) gid: u32,
}

/// The user of this name; `None` if there is none.
pub(crate) fn user_by_name(name: &str) -> io::Result<Option<User>> {
    let name = c_string(name)?;
    user(|entry, bytes, found| {
        // SAFETY: see `lookup`; `name` lives through the call.
        unsafe { libc::getpwnam_r(name.as_ptr(), entry, bytes.as_mut_ptr(), bytes.len(), found) }
    })
}

/// The user of this number; `None` if the database has no such user. The kernel accepts any number.
pub(crate) fn user_by_number(uid: u32) -> io::Result<Option<User>> {
    user(|entry, bytes, found| {
        // SAFETY: see `lookup`.
        unsafe { libc::getpwuid_r(uid, entry, bytes.as_mut_ptr(), bytes.len(), found) }
    })
}

fn user(
    call: impl FnMut(*mut libc::passwd, &mut [libc::c_char], *mut *mut libc::passwd) -> i32,
) -> io::Result<Option<User>> {
    lookup(call, |entry: &libc::passwd| User {
        // SAFETY: getpwnam_r(3) and its sister fill `pw_name` with a C string, which lives in the
        // buffer that `lookup` still holds.
        name: unsafe { text(entry.pw_name) },
        uid: entry.pw_uid,
        gid: entry.pw_gid,
    })
}

/// The number of the group of this name; `None` if there is none.
pub(crate) fn group_by_name(name: &str) -> io::Result<Option<u32>> {
    let name = c_string(name)?;
    lookup(
        |entry, bytes, found| {
            // SAFETY: see `lookup`; `name` lives through the call.
            unsafe {
                libc::getgrnam_r(name.as_ptr(), entry, bytes.as_mut_ptr(), bytes.len(), found)
            }
        },
        |entry: &libc::group| entry.gr_gid,
    )
}

/// All groups of a user, `gid` among them (getgrouplist(3)).
pub(crate) fn groups_of(name: &str, gid: u32) -> io::Result<Vec<u32>> {
    let name = c_string(name)?;
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut count = i32::try_from(groups.len()).expect("bounded below");
        // SAFETY: `count` says how many groups there is room for in `groups`; the call fills no more than that, and sets
        // `count` to the user's number of groups.
        let status =
            unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        let count = usize::try_from(count).unwrap_or_default();
        if status != -1 {
            groups.truncate(count);
            return Ok(groups);
        }
        if groups.len() >= GROUPS_MAX {
            return Err(io::Error::other(
                "the user is in more groups than the kernel knows",
            ));
        }
        groups.resize(count.max(groups.len() * 2).min(GROUPS_MAX), 0);
    }
}

/// Calls `call` with a buffer that grows until the entry fits. `call` is one of the `getpwnam_r(3)` family: it fills the
/// entry, whose pointers lead into the buffer, and points `found` to the entry or to null.
fn lookup<E, T>(
    mut call: impl FnMut(*mut E, &mut [libc::c_char], *mut *mut E) -> i32,
    read: impl FnOnce(&E) -> T,
) -> io::Result<Option<T>> {
    let mut bytes = vec![0; 1024];
    loop {
        let mut entry = MaybeUninit::<E>::uninit();
        let mut found = std::ptr::null_mut();
        match call(entry.as_mut_ptr(), &mut bytes, &raw mut found) {
            0 if found.is_null() => return Ok(None),
            // SAFETY: the call has found an entry, so it has filled `entry`.
            0 => return Ok(Some(read(unsafe { entry.assume_init_ref() }))),
            libc::EINTR => {}
            libc::ERANGE if bytes.len() < ENTRY_BYTES_MAX => bytes.resize(bytes.len() * 2, 0),
            // getpwnam(3) lists these as other ways to report that there is no such entry.
            libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => return Ok(None),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// # Safety
///
/// `pointer` must lead to a C string.
unsafe fn text(pointer: *const libc::c_char) -> String {
    // SAFETY: the caller has promised as much.
    unsafe { CStr::from_ptr(pointer) }
        .to_string_lossy()
        .into_owned()
}

fn c_string(name: &str) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a NUL in a name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_everywhere_and_others_are_not() {
        let root = User {
            name: "root".into(),
            uid: 0,
            gid: 0,
        };
        assert_eq!(user_by_name("root").expect("asked"), Some(root.clone()));
        assert_eq!(user_by_number(0).expect("asked"), Some(root));
        assert_eq!(group_by_name("root").expect("asked"), Some(0));
        assert_eq!(user_by_name("no-such-user-here").expect("asked"), None);
        assert_eq!(user_by_number(4_000_000_000).expect("asked"), None);
        assert_eq!(group_by_name("no-such-group-here").expect("asked"), None);
        assert!(groups_of("root", 0).expect("asked").contains(&0));
        assert!(user_by_name("a\0b").is_err());
    }
}
