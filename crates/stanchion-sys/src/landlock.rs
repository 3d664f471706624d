//! Landlock limits the files that a process may reach from now on, whatever its user may reach (landlock(7)). On newer
//! kernels it also limits the TCP ports to which the process may connect, and keeps it from signalling processes outside.
//! Files that are open already stay open.

use std::io;
use std::path::{Path, PathBuf};

use ::landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, make_bitflags,
};

/// The newest rules that we use: files (1 to 3), TCP (4), devices (5), signals and abstract sockets (6).
const KNOWN: ABI = ABI::V6;

/// The files and ports that a process still needs.
#[derive(Debug, Default)]
pub struct Needs {
    /// Files, and directories with their content, to read.
    pub read: Vec<PathBuf>,
    /// Directories in which the process creates files and appends to them, or such files.
    pub append: Vec<PathBuf>,
    /// Directories in which the process creates, writes, reads and removes files, and which it removes at last.
    pub own: Vec<PathBuf>,
    /// Directories in which the process creates, writes, shortens and removes files.
    pub rotated: Vec<PathBuf>,
    /// Ports to which the process connects.
    pub connect: Vec<u16>,
}

/// How many of the limits the kernel enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforced {
    /// Files, devices, TCP ports and signals.
    All,
    /// Files, but not everything else: the kernel is older than Linux 6.12.
    Partly,
    /// Nothing: the kernel has no Landlock, or was started without it (`lsm=`).
    Nothing,
}

/// Limits this thread, and the threads that it starts, to `needs`. A path that does not exist is skipped, and stays out of
/// reach. Sets `no_new_privs`.
pub fn confine(needs: &Needs) -> io::Result<Enforced> {
    let status = ruleset(needs)
        .and_then(RulesetCreated::restrict_self)
        .map_err(io::Error::other)?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Enforced::All,
        RulesetStatus::PartiallyEnforced => Enforced::Partly,
        RulesetStatus::NotEnforced => Enforced::Nothing,
    })
}

/// How many of the limits this kernel would enforce.
pub fn available() -> Enforced {
    // `LANDLOCK_CREATE_RULESET_VERSION` in landlock_create_ruleset(2).
    const VERSION: u32 = 1;
    let none = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the call takes a null pointer and returns a number.
    match unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0_usize, VERSION) } {
        ..=0 => Enforced::Nothing,
        version if version < KNOWN as i64 => Enforced::Partly,
        _ => Enforced::All,
    }
}

fn ruleset(needs: &Needs) -> Result<RulesetCreated, RulesetError> {
    let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    let append = make_bitflags!(AccessFs::{WriteFile | MakeReg | ReadDir});
    let own = read | append | AccessFs::RemoveFile;
    let rotated = append | AccessFs::RemoveFile | AccessFs::Truncate;
    let mut made = Ruleset::default()
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::ConnectTcp)?
        .scope(Scope::from_all(KNOWN))?
        .create()?;
    for (places, access) in [
        (&needs.read, read),
        (&needs.append, append),
        (&needs.own, own),
        (&needs.rotated, rotated),
    ] {
        for place in places {
            made = allow(made, place, access)?;
        }
    }
    // The right to remove a directory belongs to the directory above it.
    for above in needs.own.iter().filter_map(|place| place.parent()) {
        made = allow(made, above, AccessFs::RemoveDir.into())?;
    }
    for &port in &needs.connect {
        made = made.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
    }
    Ok(made)
}

fn allow(
    made: RulesetCreated,
    place: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(opened) = PathFd::new(place) else {
        return Ok(made);
    };
    // The kernel refuses a directory's rights for a file (EINVAL in landlock_add_rule(2)).
    let access = if place.is_dir() {
        access
    } else {
        access & AccessFs::from_file(KNOWN)
    };
    made.add_rule(PathBeneath::new(opened, access))
}
