//! What a process may do beyond what its user may, and how it gives that up for good
//! (capabilities(7)). All of this concerns one thread, so it is for a process that has one.

use std::io;

use rustix::io::Errno;
use rustix::process::DumpableBehavior;
use rustix::thread::{self, CapabilitySet, CapabilitySets};

use crate::call::{InCall, named};

/// What an acceptor keeps of what it has, which is nothing unless it is root or was given some: it
/// makes logs anew in directories that another user owns, and binds ports that workers ask for.
const OF_ACCEPTOR: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::NET_BIND_SERVICE);

/// Keeps no capabilities but those that an acceptor works with, and hands none of them on. Gives
/// how many are left.
pub fn keep_those_of_acceptor() -> io::Result<u32> {
    let held = thread::capabilities(None).in_call("capget")?.permitted;
    let kept = held & OF_ACCEPTOR;
    keep(kept)?;
    Ok(kept.bits().count_ones())
}

/// How many those are of a process that has what we have, and that changes its user first or not.
pub fn acceptor_would_keep(changes_user: bool) -> io::Result<u32> {
    let held = thread::capabilities(None).in_call("capget")?.permitted;
    // Root loses all with its user (capabilities(7)).
    let kept = if changes_user {
        CapabilitySet::empty()
    } else {
        held & OF_ACCEPTOR
    };
    Ok(kept.bits().count_ones())
}

/// For a process that runs the app: what the server was given, as by `AmbientCapabilities=` of
/// systemd, is not the app's. Root keeps what root has: taking it away would leave files that are
/// root's own and nothing else in working order.
pub fn keep_none_unless_root() -> io::Result<()> {
    let held = thread::capabilities(None).in_call("capget")?.permitted;
    let is_root = rustix::process::geteuid().is_root();
    keep(if is_root {
        held
    } else {
        CapabilitySet::empty()
    })
}

/// Empties the inheritable set too, and with it the kernel empties the ambient one, which is never
/// larger.
fn keep(kept: CapabilitySet) -> io::Result<()> {
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    thread::set_capabilities(None, sets).in_call("capset")
}

/// Empties the bounding set, so that no program that is executed can bring capabilities. False if
/// it is not ours to change: that takes `CAP_SETPCAP`, so it comes before a change of users.
pub fn empty_bounding_set() -> io::Result<bool> {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match thread::remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            // The kernel's last one was before.
            Err(Errno::INVAL) => return Ok(true),
            Err(Errno::PERM) => return Ok(false),
            Err(error) => return Err(named("prctl", error)),
        }
    }
    Ok(true)
}

/// From now on no program that is executed, sudo(8) included, gets more than this process has
/// (`PR_SET_NO_NEW_PRIVS` in prctl(2)).
pub fn set_no_new_privs() -> io::Result<()> {
    thread::set_no_new_privs(true).in_call("prctl")
}

/// No other process of this user can look into this one, or trace it (`PR_SET_DUMPABLE` in prctl(2),
/// ptrace(2)); its files in /proc are root's, and it leaves no core file. execve(2) and a change of
/// users undo it.
pub fn hide_memory() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).in_call("prctl")
}
