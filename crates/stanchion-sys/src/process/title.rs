//! The title of a process, which `ps` shows in place of its command line.
//!
//! The kernel reads a command line from the memory of the process, between two addresses that it keeps
//! (`/proc/PID/cmdline` in proc(5)). Most programs write a title over the arguments there, and over the environment
//! behind them if the arguments are too short. This module gives the kernel other addresses (`PR_SET_MM_MAP` in
//! prctl(2)), which takes no privilege: a title then has the room it needs, no other memory is overwritten, and
//! `/proc/PID/environ` still shows the environment.
//!
//! The page of the title is named to the kernel before the process has a thread and before the acceptor's filter. The
//! master's command line stands behind its title, since the doctor reads settings there; an upgrade goes by
//! `sys.orig_argv`.

use std::io;

use rustix::mm::{MapFlags, ProtFlags};

use super::refuse_threads;

use crate::call::{InCall, checked};

/// The kernel's record of the layout of a process: `struct prctl_mm_map` in linux/prctl.h.
#[repr(C)]
#[derive(Debug)]
struct PrctlMmMap {
    start_code: u64,
    end_code: u64,
    start_data: u64,
    end_data: u64,
    start_brk: u64,
    brk: u64,
    start_stack: u64,
    arg_start: u64,
    arg_end: u64,
    env_start: u64,
    env_end: u64,
    auxv: u64,
    auxv_size: u32,
    exe_fd: u32,
}

/// For `auxv_size` and `exe_fd`: the process keeps its own.
const SAME_AUXV: u32 = 0;
const SAME_EXE: u32 = u32::MAX;

/// Shows `words` as the command line, for a process that has one thread. This fails in a process with more threads, and
/// the kernel refuses it without `CONFIG_CHECKPOINT_RESTORE` or proc(5); the command line then stays as it is.
///
/// Each call takes the memory that the words need, in whole pages, for the life of the process.
pub fn show<W: AsRef<[u8]>>(words: &[W]) -> io::Result<()> {
    // Another thread might move the end of the heap after we read it and before we pass it to the kernel.
    refuse_threads()?;
    let mut text = Vec::new();
    for word in words {
        text.extend_from_slice(word.as_ref());
        text.push(0);
    }
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let mut layout = PrctlMmMap::of(&stat).ok_or(io::ErrorKind::InvalidData)?;
    layout.arg_start = kept(&text)?;
    layout.arg_end = layout.arg_start + text.len() as u64;
    // SAFETY: brk(2) with an address that it cannot grant changes nothing and returns the end of the heap. No code
    // allocates between this call and the next, and there is no other thread.
    layout.brk = unsafe { libc::syscall(libc::SYS_brk, 0) }.cast_unsigned();
    // SAFETY: the layout has the size that is passed, and lives over the call. Its fields are what the kernel reported
    // of this process, except the arguments, which are memory of ours that is never freed.
    let done = unsafe {
        libc::prctl(
            libc::PR_SET_MM,
            libc::PR_SET_MM_MAP,
            &raw const layout,
            size_of::<PrctlMmMap>(),
            0,
        )
    };
    checked("prctl", done).map(drop)
}

/// The address of a copy that stays.
fn kept(text: &[u8]) -> io::Result<u64> {
    let (flags, access) = (MapFlags::PRIVATE, ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new mapping at an address of the kernel's choice aliases nothing; it is never unmapped.
    let memory =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), text.len(), access, flags) }
            .in_call("mmap")?;
    // SAFETY: the mapping is as long as the text, writable and zeroed, and no other code has its address.
    let copy = unsafe { std::slice::from_raw_parts_mut(memory.cast::<u8>(), text.len()) };
    copy.copy_from_slice(text);
    Ok(memory.addr() as u64)
}

impl PrctlMmMap {
    /// Reads the line of /proc/PID/stat (proc(5), where the first field is number 1). `None` if a field is missing or
    /// 0: the kernel shows 0 to a reader that may not know an address.
    fn of(stat: &str) -> Option<Self> {
        // The second field, the name, may contain spaces and parentheses.
        let (_, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<_> = rest.split_ascii_whitespace().collect();
        let address = |number: usize| fields.get(number - 3)?.parse().ok().filter(|&at| at > 0);
        Some(Self {
            start_code: address(26)?,
            end_code: address(27)?,
            start_data: address(45)?,
            end_data: address(46)?,
            start_brk: address(47)?,
            brk: 0,
            start_stack: address(28)?,
            arg_start: 0,
            arg_end: 0,
            env_start: address(50)?,
            env_end: address(51)?,
            auxv: 0,
            auxv_size: SAME_AUXV,
            exe_fd: SAME_EXE,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_the_end_of_itself() {
        let fields: Vec<_> = (3..=52).map(|number| number.to_string()).collect();
        let layout = PrctlMmMap::of(&format!("7 (a) b) {}\n", fields.join(" "))).expect("read");
        assert_eq!((layout.start_code, layout.env_end), (26, 51));
        assert!(PrctlMmMap::of(&format!("7 (a) {}", fields[..40].join(" "))).is_none());
        let hidden = fields.join(" ").replace(" 50 ", " 0 ");
        assert!(PrctlMmMap::of(&format!("7 (a) {hidden}")).is_none());
    }
}
