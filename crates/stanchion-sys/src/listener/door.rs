//! Closing a TCP listener to newcomers only.

use std::io;
use std::os::fd::RawFd;

/// A classic BPF program (socket(7), `SO_ATTACH_FILTER`) over the TCP header: a segment with SYN
/// and without ACK is dropped, all else passes.
pub(super) fn drop_new_syns(fd: RawFd) -> io::Result<()> {
    const FLAGS_OFFSET: u32 = 13; // RFC 9293 section 3.1
    const SYN: u32 = 0x02;
    const SYN_ACK_MASK: u32 = 0x12;
    let code = |code: u32| u16::try_from(code).expect("classic BPF opcodes are 16 bits");
    let mut program = [
        libc::sock_filter {
            code: code(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS),
            jt: 0,
            jf: 0,
            k: FLAGS_OFFSET,
        },
        libc::sock_filter {
            code: code(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K),
            jt: 0,
            jf: 0,
            k: SYN_ACK_MASK,
        },
        libc::sock_filter {
            code: code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K),
            jt: 0,
            jf: 1,
            k: SYN,
        },
        libc::sock_filter {
            code: code(libc::BPF_RET | libc::BPF_K),
            jt: 0,
            jf: 0,
            k: 0,
        },
        libc::sock_filter {
            code: code(libc::BPF_RET | libc::BPF_K),
            jt: 0,
            jf: 0,
            k: u32::MAX,
        },
    ];
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: `program` and the instructions it points to live through the call; the kernel
    // copies and checks them.
    let status = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if status == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
