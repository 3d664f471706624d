//! Whom acceptor, template and workers act as. A master that is root stays root, to bind ports and
//! to start others anew; it reads no byte of a client's and runs no line of the app's.

use stanchion_sys::identity::Identity;
use tracing::error;

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

/// For a newborn child, before anything else: it never was root as far as anybody outside can tell.
/// The error is an exit code; why is in the log.
pub(crate) fn drop(common: &Common) -> Result<(), i32> {
    let Some(identity) = &common.identity else {
        return Ok(());
    };
    identity.assume().map_err(|error| {
        error!(
            "cannot become user {} and group {}: {error}",
            identity.uid(),
            identity.gid()
        );
        exit_code::INTERNAL
    })
}
