"""The memory of a server's processes, whatever else runs on the machine."""

import mmap
import os
import re
from array import array
from collections.abc import Iterator
from pathlib import Path

import psutil

ENTRY_BYTES = 8
"""The bytes that pagemap has for each page (Documentation/admin-guide/mm/pagemap.rst of the kernel)."""
SHARED = 1 << 63 | 1 << 61
"""The bits of an entry whose page is in memory (63), and a file's or shared memory (61)."""

Page = tuple[str, str, int]
"""Device, inode and number of a page of a file, or of shared memory."""


def memory_bytes(processes: list[psutil.Process]) -> int:
    """The memory that these processes would take if no others ran: each page of a file counts once, and whole.

    PSS divides such a page by all processes that map it. Both servers of a pair run at the same time, and map the same
    Python: uvicorn one process, ours three. So PSS charges the usual server with a part of what it needs when it runs
    alone, and with less the more processes of others run the same Python.
    """
    pages = {page for process in processes for page in shared_pages(process.pid)}
    return sum(anonymous_bytes(process.pid) for process in processes) + len(pages) * mmap.PAGESIZE


def anonymous_bytes(pid: int) -> int:
    """The memory that is no file's (proc(5), smaps_rollup). A page that was there before a fork is divided."""
    found = re.search(r"^Pss_Anon:\s+(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) * 1024


def shared_pages(pid: int) -> Iterator[Page]:
    """Pages of files and of shared memory that a process maps. A page of a file that it has changed is anonymous."""
    pagemap = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY)
    try:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, _, offset, device, inode = line.split(maxsplit=5)[:5]
            if inode == "0":
                continue
            start, end = (int(number, 16) // mmap.PAGESIZE for number in span.split("-"))
            entries = array("Q", os.pread(pagemap, (end - start) * ENTRY_BYTES, start * ENTRY_BYTES))
            for number, entry in enumerate(entries, int(offset, 16) // mmap.PAGESIZE):
                if entry & SHARED == SHARED:
                    yield device, inode, number
    finally:
        os.close(pagemap)
