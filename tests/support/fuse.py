"""A file system in user space that records which thread asks for what, and may stop answering (/dev/fuse, fuse(4))."""

import ctypes
import errno
import os
import select
import struct
import threading
from collections.abc import Mapping
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
MNT_DETACH = 2
ROOT = 1
# The operations of the kernel's protocol, version 7.31 (linux/fuse.h), that a reader of files needs.
NAMES = {1: "lookup", 3: "getattr", 14: "open", 15: "read", 17: "statfs", 18: "release", 25: "flush", 26: "init"}
FORGETTING = (2, 42)
"""They have no answer."""
DIRECT_IO = 1
"""With this flag the kernel does not keep what it has read in the page cache."""


def is_there() -> bool:
    return os.geteuid() == 0 and os.path.exists("/dev/fuse")


class FileSystem:
    """Files of one directory, mounted until `close`."""

    def __init__(self, place: Path, files: Mapping[str, bytes]) -> None:
        place.mkdir()
        self._place = str(place).encode()
        self._names = list(files)
        self._contents = list(files.values())
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        self._end, self._ends = os.pipe()
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if LIBC.mount(b"test", self._place, b"fuse", 0, options):
            os.close(self._device)
            raise OSError(ctypes.get_errno(), "mount")
        self.asked: list[tuple[str, str]] = []
        """The operations that were asked for, each with the thread that asked."""
        self._answers = threading.Event()
        self._answers.set()
        self._fails = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def hang(self) -> None:
        self._answers.clear()

    def go_on(self) -> None:
        self._answers.set()

    def fail(self) -> None:
        """From now on no file can be opened."""
        self._fails = True

    def close(self) -> None:
        self.go_on()
        os.close(self._ends)
        self._thread.join()
        # Threads that still wait for an answer get an error, and the mount ends with its last user.
        os.close(self._device)
        os.close(self._end)
        LIBC.umount2(self._place, MNT_DETACH)

    def _serve(self) -> None:
        poll = select.poll()
        for descriptor in (self._device, self._end):
            poll.register(descriptor, select.POLLIN)
        while self._device in (ready := dict(poll.poll())) and self._end not in ready:
            try:
                request = os.read(self._device, 1 << 17)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.ENOENT):  # the thread that asked was interrupted meanwhile
                    raise
                continue
            _, operation, unique, node, _, _, pid, _ = struct.unpack_from("<IIQQIIII", request)
            if operation in FORGETTING:
                continue
            # The kernel itself sends the last operation of a file, with pid 0.
            if pid:
                self.asked.append((NAMES.get(operation, str(operation)), thread_name(pid)))
            self._answers.wait()
            try:
                answer, failed = self._answer(operation, node, request[40:]), 0
            except OSError as error:
                answer, failed = b"", -(error.errno or errno.EIO)
            try:
                os.write(self._device, struct.pack("<IiQ", 16 + len(answer), failed, unique) + answer)
            except OSError as error:
                if error.errno != errno.ENOENT:  # the thread that asked was interrupted
                    return

    def _answer(self, operation: int, node: int, body: bytes) -> bytes:
        match operation:
            case 26:
                return struct.pack("<IIIIHHIIHHI", 7, 31, 65536, 0, 16, 12, 65536, 1, 32, 0, 0) + bytes(24)
            case 1:
                name = body.split(b"\0")[0].decode()
                if name not in self._names:
                    raise OSError(errno.ENOENT, name)
                found = self._names.index(name) + 2
                return struct.pack("<QQQQII", found, 0, 1, 1, 0, 0) + self._attributes(found)
            case 3:
                return struct.pack("<QII", 1, 0, 0) + self._attributes(node)
            case 14 if self._fails:
                raise OSError(errno.EIO, "open")
            case 14:
                return struct.pack("<QII", 1, DIRECT_IO if "direct" in self._names[node - 2] else 0, 0)
            case 15:
                _, offset, size = struct.unpack_from("<QQI", body)
                return self._contents[node - 2][offset : offset + size]
            case 17:
                return struct.pack("<QQQQQIIII", 1, 1, 1, 1, 1, 512, 255, 512, 0) + bytes(24)
            case 18 | 25:
                return b""
        raise OSError(errno.ENOSYS, operation)

    def _attributes(self, node: int) -> bytes:
        mode, size = (0o40755, 0) if node == ROOT else (0o100644, len(self._contents[node - 2]))
        return struct.pack("<QQQQQQIIIIIIIIII", node, size, 0, 1, 1, 1, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def thread_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return str(pid)
