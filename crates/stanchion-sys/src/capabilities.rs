//! Capabilities: the rights of a process beyond those of its user, and how the process drops them for good (capabilities(7)).
//! All calls concern one thread, so they are for a process that has one.

use std::io;

use rustix::io::Errno;
use rustix::process::DumpableBehavior;
use rustix::thread::{self, CapabilitySet, CapabilitySets};

use crate::call::{InCall, named};

/// The capabilities that an acceptor keeps, if it has them: only root, or a process that was given some, has any. The
/// acceptor creates log files in directories that another user owns, and binds ports that workers ask for.
const OF_ACCEPTOR: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::NET_BIND_SERVICE);

/// Drops all capabilities but those that an acceptor works with, and passes none on to programs that it executes. Returns how
/// many are left.
pub fn keep_those_of_acceptor() -> io::Result<u32> {
    let kept = held()? & OF_ACCEPTOR;
    keep(kept)?;
    Ok(kept.bits().count_ones())
}

/// How many capabilities [`keep_those_of_acceptor`] would leave to a process that has those of this one, and that changes its
/// user first or not.
pub fn acceptor_would_keep(changes_user: bool) -> io::Result<u32> {
    let held = held()?;
    // Root loses all capabilities when it changes its user (capabilities(7)).
    let kept = if changes_user {
        CapabilitySet::empty()
    } else {
        held & OF_ACCEPTOR
    };
    Ok(kept.bits().count_ones())
}

/// For a process that runs the app: capabilities that the server was given, such as by `AmbientCapabilities=` of systemd, are
/// not for the app. Root keeps root's capabilities: without them, root's processes could use nothing but files that root
/// owns.
pub fn keep_none_unless_root() -> io::Result<()> {
    let (held, is_root) = (held()?, rustix::process::geteuid().is_root());
    keep(if is_root {
        held
    } else {
        CapabilitySet::empty()
    })
}

fn held() -> io::Result<CapabilitySet> {
    Ok(thread::capabilities(None).in_call("capget")?.permitted)
}

/// Empties the inheritable set too; with it the kernel empties the ambient one, which is never larger.
fn keep(kept: CapabilitySet) -> io::Result<()> {
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    thread::set_capabilities(None, sets).in_call("capset")
}

/// Empties the bounding set, so that no program that this process executes can bring capabilities. False if this process may
/// not: it takes `CAP_SETPCAP`, so it must come before a change of users.
pub fn empty_bounding_set() -> io::Result<bool> {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match thread::remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // The previous number was the kernel's last capability.
            Err(Errno::INVAL) => return Ok(true),
            Err(Errno::PERM) => return Ok(false),
            Err(error) => return Err(named("prctl", error)),
        }
    }
    Ok(true)
}

/// From now on no program that this process executes, sudo(8) included, gets more rights than this process has
/// (`PR_SET_NO_NEW_PRIVS` in prctl(2)).
pub fn set_no_new_privs() -> io::Result<()> {
    thread::set_no_new_privs(true).in_call("prctl")
}

/// Keeps other processes of this user from looking into this one or tracing it (`PR_SET_DUMPABLE` in prctl(2), ptrace(2)).
/// The kernel gives its files in /proc to root, and writes no core file for it. execve(2) and a change of users undo this.
pub fn hide_memory() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).in_call("prctl")
}
