//! The users that processes run as, and the owners of the files that they share.

use stanchion_log as log;
use stanchion_settings::Settings;
use stanchion_sys::identity::Identity;

use crate::spool;

/// The users that the processes of a generation become; `None` where the user stays the same.
#[derive(Debug, PartialEq, Eq)]
pub struct Identities {
    /// Template and workers.
    pub app: Option<Identity>,
    /// The acceptor.
    pub acceptor: Option<Identity>,
}

/// Looks up what `user`, `group`, `initgroups` and `acceptor_user` say. The error is the operator's.
pub fn find(settings: &Settings) -> Result<Identities, String> {
    let (user, group) = (
        settings.process.user.as_deref(),
        settings.process.group.as_deref(),
    );
    let app = Identity::find(user, group, settings.process.initgroups)
        .map_err(|problem| format!("settings `user` and `group`: {problem}"))?;
    let acceptor = match settings.process.acceptor_user.as_deref() {
        None => app.clone(),
        user => Identity::find(user, None, false)
            .map_err(|problem| format!("setting `acceptor_user`: {problem}"))?,
    };
    Ok(Identities { app, acceptor })
}

impl Identities {
    /// The owner of a log that app and acceptor both write to. Where they are two users, the acceptor opens it by its group.
    pub fn of_error_log(&self) -> Option<log::FileOwner> {
        let own = log::FileOwner::of(self.app.as_ref());
        match &self.acceptor {
            Some(acceptor) if self.acceptor != self.app => Some(log::FileOwner {
                gid: acceptor.gid(),
                group_writes: true,
                ..own.unwrap_or_default()
            }),
            _ => own,
        }
    }

    /// The owner of the access log: the acceptor's user, or the scribe's if there is one.
    pub fn of_access_log(&self, has_scribe: bool) -> Option<log::FileOwner> {
        let writer = if has_scribe {
            &self.app
        } else {
            &self.acceptor
        };
        log::FileOwner::of(writer.as_ref())
    }

    /// The owner of a recording of arrivals: the acceptor's user.
    pub fn of_recording(&self) -> Option<log::FileOwner> {
        log::FileOwner::of(self.acceptor.as_ref())
    }

    /// The owner of the spool: the acceptor's user. Workers of another user open bodies there by the names that they get, and see no other names.
    pub fn of_spool(&self) -> Option<spool::DirectoryOwner> {
        let acceptor = self.acceptor.as_ref()?;
        let group_reads = self.acceptor != self.app;
        Some(spool::DirectoryOwner {
            uid: acceptor.uid(),
            gid: match &self.app {
                _ if !group_reads => acceptor.gid(),
                None => 0,
                Some(app) => app.gid(),
            },
            group_reads,
        })
    }
}
