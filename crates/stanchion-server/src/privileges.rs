//! Who runs as whom, and what each process gives up before it sees a byte of a client's or of the
//! app's. A master that is root stays root, to listen and to start others anew: what a process gives
//! up its children have lost too, so the master can give up only what no app ever needs.

use std::io;

use stanchion_sys::capabilities;
use stanchion_sys::identity::{self, Identity};
use tracing::{debug, error, info, warn};

use crate::exit_code;
use crate::settings::Settings;
use crate::tree::Common;

/// Looks up what `user`, `group` and `initgroups` say; `None` if nobody is to become anybody else.
/// The error is the operator's.
pub(crate) fn find(settings: &Settings) -> Result<Option<Identity>, String> {
    let (user, group) = (settings.user.as_deref(), settings.group.as_deref());
    Identity::find(user, group, settings.initgroups)
        .map_err(|problem| format!("settings `user` and `group`: {problem}"))
}

/// Root is never root in silence.
pub(crate) fn say_what_is_root(identity: Option<&Identity>) {
    if identity::effective_uid() != 0 {
        return;
    }
    match identity.map(Identity::uid) {
        None | Some(0) => warn!(
            "the app runs as root: whoever breaks into it owns this host or container. Set `user`, \
             or start the server as another user"
        ),
        Some(uid) => info!(
            "only the master is root, to listen, to open logs and to start the others as user {uid}"
        ),
    }
}

/// For a newborn acceptor, before anything else. The error is an exit code; why is in the log.
pub(crate) fn confine_acceptor(common: &Common) -> Result<(), i32> {
    let confined = || -> io::Result<String> {
        // Where it cannot be emptied, no_new_privs below keeps what it would let through.
        capabilities::empty_bounding_set()?;
        become_who(common)?;
        let kept = capabilities::keep_those_of_acceptor()?;
        capabilities::set_no_new_privs()?;
        // After the change of users, which decides it anew.
        capabilities::hide_memory()?;
        Ok(format!(
            "user {}, {}, no_new_privs, not dumpable",
            identity::effective_uid(),
            match kept {
                0 => "no capabilities".to_owned(),
                more => format!("{more} capabilities"),
            },
        ))
    };
    let in_force = confined().map_err(|error| cannot("the acceptor", &error))?;
    // Once, not at each reload.
    if common.generation == 1 {
        info!("acceptor confined: {in_force}");
    } else {
        debug!("acceptor confined: {in_force}");
    }
    Ok(())
}

/// For a newborn template, before anything else; its workers inherit it all. The error is an exit
/// code; why is in the log.
pub(crate) fn confine_app(common: &Common) -> Result<(), i32> {
    let confined = || -> io::Result<()> {
        let is_bound = common.settings.worker_no_new_privs;
        if is_bound {
            capabilities::empty_bounding_set()?;
        }
        become_who(common)?;
        capabilities::keep_none_unless_root()?;
        if is_bound {
            capabilities::set_no_new_privs()?;
        }
        Ok(())
    };
    confined().map_err(|error| cannot("the template", &error))
}

fn become_who(common: &Common) -> io::Result<()> {
    common.identity.as_ref().map_or(Ok(()), |identity| {
        identity.assume().map_err(|error| {
            let (uid, gid) = (identity.uid(), identity.gid());
            let problem = format!("it cannot become user {uid} and group {gid}: {error}");
            io::Error::new(error.kind(), problem)
        })
    })
}

fn cannot(who: &str, error: &io::Error) -> i32 {
    error!("{who} cannot give up its privileges: {error}");
    exit_code::INTERNAL
}
