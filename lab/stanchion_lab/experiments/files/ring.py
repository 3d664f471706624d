"""io_uring by its three system calls and the memory that it shares, as far as accept(2) needs it: io_uring(7)."""

import ctypes
import errno
import mmap
import os
import struct
from collections import deque

# The same numbers on every architecture but alpha.
SYS_IO_URING_SETUP, SYS_IO_URING_ENTER = 425, 426
OP_ACCEPT = 13
ACCEPT_MULTISHOT = 1  # in ioprio: one entry goes on accepting, since Linux 5.19
ENTER_GETEVENTS = 1
FEAT_SINGLE_MMAP = 1
OFFSET_RINGS, OFFSET_ENTRIES = 0, 0x10000000
ENTRIES = 256  # with twice as many completions; a multishot accept is used up when there is no room for another
CQE_MORE = 2  # of a multishot entry: it is still armed

# struct io_uring_params: sq_entries, cq_entries, flags, sq_thread_cpu, sq_thread_idle, features, wq_fd, resv[3], then
# struct io_sqring_offsets and struct io_cqring_offsets: head, tail, ring_mask, ring_entries, ... each
PARAMS = struct.Struct("=10I" + "8IQ" + "8IQ")
SQ, CQ = 10, 19  # where the two begin among these fields
# struct io_uring_sqe: opcode, flags, ioprio, fd, off, addr, len, accept_flags, user_data; accept needs no more
SQE = struct.Struct("=BBHiQQIIQ24x")
# struct io_uring_cqe: user_data, res, flags
CQE = struct.Struct("=QiI")
U32 = struct.Struct("=I")

libc = ctypes.CDLL(None, use_errno=True)


class Ring:
    """Accepts from one listening socket. OSError: ENOSYS or EPERM where the kernel, or who set it up, allows no
    io_uring."""

    def __init__(self, listener: int, multishot: bool) -> None:
        self.listener = listener
        self.multishot = multishot
        self.armed = False
        self.accepted: deque[int] = deque()
        params = ctypes.create_string_buffer(PARAMS.size)
        self.fd = checked(libc.syscall(SYS_IO_URING_SETUP, ENTRIES, params))
        fields = PARAMS.unpack(params)
        if not fields[5] & FEAT_SINGLE_MMAP:
            raise OSError(errno.ENOSYS, "io_uring of before Linux 5.4")
        self.sq_tail, self.sq_mask, self.sq_array = fields[SQ + 1], fields[SQ + 2], fields[SQ + 6]
        self.cq_head, self.cq_tail, self.cq_mask, self.cqes = fields[CQ], fields[CQ + 1], fields[CQ + 2], fields[CQ + 5]
        size = max(self.sq_array + fields[0] * U32.size, self.cqes + fields[1] * CQE.size)
        self.rings = mmap.mmap(self.fd, size, mmap.MAP_SHARED, offset=OFFSET_RINGS)
        self.entries = mmap.mmap(self.fd, fields[0] * SQE.size, mmap.MAP_SHARED, offset=OFFSET_ENTRIES)

    def arm(self) -> None:
        """Submit an accept. The kernel reads the entry within the call, so no barrier is needed."""
        tail = self._read(self.sq_tail)
        index = tail & self._read(self.sq_mask)
        ioprio = ACCEPT_MULTISHOT if self.multishot else 0
        SQE.pack_into(self.entries, index * SQE.size, OP_ACCEPT, 0, ioprio, self.listener, 0, 0, 0, os.O_CLOEXEC, 0)
        U32.pack_into(self.rings, self.sq_array + index * U32.size, index)
        U32.pack_into(self.rings, self.sq_tail, tail + 1 & 0xFFFF_FFFF)
        checked(libc.syscall(SYS_IO_URING_ENTER, self.fd, 1, 0, 0, None, 0))
        self.armed = True

    def accept(self) -> int:
        """The next connection. An accept that is used up is submitted again here, when the worker is free for it."""
        while not self.accepted:
            if not self.armed:
                self.arm()
            checked(libc.syscall(SYS_IO_URING_ENTER, self.fd, 0, 1, ENTER_GETEVENTS, None, 0))
            self._reap()
        return self.accepted.popleft()

    def _reap(self) -> None:
        head, tail = self._read(self.cq_head), self._read(self.cq_tail)
        while head != tail:
            _, result, flags = CQE.unpack_from(self.rings, self.cqes + (head & self._read(self.cq_mask)) * CQE.size)
            head = head + 1 & 0xFFFF_FFFF
            U32.pack_into(self.rings, self.cq_head, head)
            self.armed = bool(flags & CQE_MORE)
            if result < 0:
                raise OSError(-result, os.strerror(-result))
            self.accepted.append(result)

    def _read(self, at: int) -> int:
        value: int = U32.unpack_from(self.rings, at)[0]
        return value


def checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
