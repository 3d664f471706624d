//! The Linux kernel behind safe types: processes, signals, futexes, shared memory, message sockets, listeners.
//!
//! This crate and `stanchion-exchange` are the only homes of `unsafe` (beside the Python fork hooks). Every function is
//! a system call, or a short sequence of system calls whose order matters, and names the man page it comes from.
//!
//! It may not know anything above a system call: no HTTP, no Python, no requests. It may not log: an error names the
//! call that the kernel refused, and the caller decides.

#[cfg(not(target_os = "linux"))]
compile_error!("stanchion needs Linux: futexes, memfd, subreapers and SEQPACKET sockets");

mod account;
pub mod activation;
pub mod adoption;
pub mod call;
pub mod capabilities;
pub mod channel;
pub mod charge;
pub mod child;
pub mod clock;
pub mod code;
pub mod control_group;
pub mod cores;
pub mod counts;
pub mod descriptors;
pub mod environment;
pub mod eventfd;
pub mod exposed_path;
pub mod fork_handlers;
pub mod futex;
pub mod heap;
pub mod held_signals;
pub mod identity;
pub mod incoming;
pub mod landlock;
pub mod listener;
mod maps;
pub mod memory;
pub mod network_namespace;
pub mod notify;
pub mod outgoing;
pub mod peer;
pub mod pinned_path;
pub mod private_socket;
pub mod process;
pub mod random;
pub mod scheduling;
pub mod seccomp;
pub mod sibling;
pub mod signal;
pub mod sock_diag;
mod socket_option;
pub mod standard_streams;
pub mod symbol;
pub mod thread_calls;
pub mod thread_clock;
pub mod thread_start;
