//! The user and groups of a process, and how root changes to another user for good (credentials(7)).

use std::io;

use crate::account::{self, User};
use crate::call::checked;

/// A user, a group, and further groups, looked up and ready to be assumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    uid: u32,
    gid: u32,
    /// Supplementary groups.
    groups: Vec<u32>,
}

impl Identity {
    /// Looks up the user and groups to become: `user` and `group` are names or numbers. Without a group it takes the user's
    /// primary group; without a user only the group changes. With `all_groups` it adds the groups that list the user. `None`
    /// if there is nothing to change.
    ///
    /// The error is for the operator, and says what to correct.
    pub fn find(
        user: Option<&str>,
        group: Option<&str>,
        all_groups: bool,
    ) -> Result<Option<Self>, String> {
        let user = user.map(find_user).transpose()?;
        let group = group.map(find_group).transpose()?;
        let (uid, gid) = match (&user, group) {
            (None, None) => return Ok(None),
            (None, Some(gid)) => (effective_uid(), gid),
            (Some((uid, _)), Some(gid)) => (*uid, gid),
            (Some((uid, Some(entry))), None) => (*uid, entry.gid),
            (Some((uid, None)), None) => {
                return Err(format!(
                    "user {uid} is not in the password database, which would know its group: \
                     name the group too"
                ));
            }
        };
        let groups = match &user {
            Some((_, Some(entry))) if all_groups => {
                account::groups_of(&entry.name, gid).map_err(|error| {
                    format!("the groups of {} cannot be listed: {error}", entry.name)
                })?
            }
            _ => vec![gid],
        };
        let wanted = Self { uid, gid, groups };
        if effective_uid() == 0 {
            return Ok(Some(wanted));
        }
        if wanted.uid == effective_uid() && wanted.gid == effective_gid() {
            // The service manager has changed the user already, as User= of systemd does.
            return Ok(None);
        }
        Err(format!(
            "only root can become user {} and group {}; this is user {} and group {}: start the server as root, or leave the setting out",
            wanted.uid,
            wanted.gid,
            effective_uid(),
            effective_gid()
        ))
    }

    /// The user's number.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The group's number.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Makes this process act as this user only from now on, and checks that it does. Groups go first, because only root may
    /// change them. For a process with one thread: the kernel changes one thread only.
    ///
    /// It clears what [`crate::process::die_with`] has set (prctl(2), `PR_SET_PDEATHSIG`), so that call must come after this
    /// one.
    pub fn assume(&self) -> io::Result<()> {
        // SAFETY: the pointer leads to so many groups, which live through the call.
        checked("setgroups", unsafe {
            libc::setgroups(self.groups.len(), self.groups.as_ptr())
        })?;
        // Set the real, effective and saved ids: the process could go back to one that it kept.
        // SAFETY: plain system calls on numbers.
        checked("setresgid", unsafe {
            libc::setresgid(self.gid, self.gid, self.gid)
        })?;
        // SAFETY: a plain system call on numbers.
        checked("setresuid", unsafe {
            libc::setresuid(self.uid, self.uid, self.uid)
        })?;
        self.verify()
    }

    fn verify(&self) -> io::Result<()> {
        let (mut uids, mut gids) = ([u32::MAX; 3], [u32::MAX; 3]);
        let [real, effective, saved] = &mut uids;
        // SAFETY: the call writes to three places, which live through it.
        checked("getresuid", unsafe {
            libc::getresuid(real, effective, saved)
        })?;
        let [real, effective, saved] = &mut gids;
        // SAFETY: the call writes to three places, which live through it.
        checked("getresgid", unsafe {
            libc::getresgid(real, effective, saved)
        })?;
        // SAFETY: setuid(2) takes any number. It must fail here, or the process could become root again.
        let root_again = self.uid != 0 && unsafe { libc::setuid(0) } == 0;
        if uids == [self.uid; 3] && gids == [self.gid; 3] && !root_again {
            Ok(())
        } else {
            Err(io::Error::other(format!(
                "the kernel did not make this process user {} and group {}",
                self.uid, self.gid
            )))
        }
    }
}

/// The number of a user, and the user's entry in the database, if it has one.
fn find_user(text: &str) -> Result<(u32, Option<User>), String> {
    let failed = |error| format!("user {text} cannot be looked up: {error}");
    match text.parse() {
        Ok(uid) => Ok((uid, account::user_by_number(uid).map_err(failed)?)),
        Err(_) => match account::user_by_name(text).map_err(failed)? {
            Some(user) => Ok((user.uid, Some(user))),
            None => Err(format!("there is no user {text} (see `getent passwd`)")),
        },
    }
}

fn find_group(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(gid) => Ok(gid),
        Err(_) => account::group_by_name(text)
            .map_err(|error| format!("group {text} cannot be looked up: {error}"))?
            .ok_or_else(|| format!("there is no group {text} (see `getent group`)")),
    }
}

/// The number of a user given by name or number.
pub fn uid_of(text: &str) -> Result<u32, String> {
    find_user(text).map(|(uid, _)| uid)
}

/// The number of a group given by name or number.
pub fn gid_of(text: &str) -> Result<u32, String> {
    find_group(text)
}

/// The user whose rights this process has.
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn effective_gid() -> u32 {
    rustix::process::getegid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{self, Exit, Fork};

    #[test]
    fn nothing_asked_for_is_nothing_to_do() {
        assert_eq!(Identity::find(None, None, true), Ok(None));
    }

    #[test]
    fn each_slip_says_what_to_correct() {
        for (user, group, part) in [
            (Some("no-such-user"), None, "there is no user no-such-user"),
            (
                None,
                Some("no-such-group"),
                "there is no group no-such-group",
            ),
            (Some("4000000000"), None, "name the group too"),
        ] {
            let error = Identity::find(user, group, false).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
    }

    /// The test changes its user in a child, because a process cannot change back.
    #[test]
    fn whoever_became_somebody_else_stays_so() {
        if effective_uid() != 0 {
            return; // only root can change its user
        }
        let found = Identity::find(Some("65534"), Some("65533"), false).expect("found");
        let identity = found.expect("root has something to change");
        // SAFETY: the child makes system calls only, and leaves by _exit(2).
        match unsafe { process::fork() }.expect("forked") {
            Fork::Child => {
                let mut groups = [0; 8];
                let assumed = identity.assume().is_ok();
                // SAFETY: `groups` has room for as many as are asked for; setuid(2) takes any number.
                let (count, again) =
                    unsafe { (libc::getgroups(8, groups.as_mut_ptr()), libc::setuid(0)) };
                let fine = assumed && count == 1 && groups[0] == 65_533 && again == -1;
                process::exit_now(if fine { 7 } else { 1 });
            }
            Fork::Parent(pid) => {
                let exit = process::wait_for(pid).expect("it is our child");
                assert_eq!(exit, Exit::Code(7));
            }
        }
    }
}
