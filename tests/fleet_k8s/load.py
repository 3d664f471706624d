"""An open-loop load: requests come when they are due, however long the answers to earlier ones take.

`load.py OUT HOST PORT WHAT SECONDS:RATE ...` writes one JSON row a request: its number, method, the time it was sent,
the time until its end, its status (0: none) and a reason. Every second request is a POST; each has a connection of its
own. TERM ends the plan: no further request is sent.
"""

import asyncio
import contextlib
import json
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

CONNECT_S, ANSWER_S = 10, 120
SEED = 1


async def exchange(number: int, host: str, port: int, what: str) -> tuple[int, str]:
    """Send one request; its status and what the answer says."""
    head = f"{what}/{number} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n"
    text = f"POST {head}Content-Length: 10\r\n\r\n{'x' * 10}" if number % 2 else f"GET {head}\r\n"
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port), CONNECT_S)
    except (OSError, TimeoutError) as problem:
        return 0, f"not connected: {problem!r}"
    try:
        writer.write(text.encode())
        data = await asyncio.wait_for(reader.read(), ANSWER_S)
    except (OSError, TimeoutError) as problem:
        return 0, f"no answer: {problem!r}"
    finally:
        writer.close()
    head_end = data.find(b"\r\n\r\n")
    if head_end < 0:
        return 0, f"cut off after {len(data)} bytes"
    refused = b"stanchion-not-run" in data[:head_end].lower()
    return int(data.split(b" ", 2)[1]), "not run" if refused else data[head_end + 4 :].decode(errors="replace")[-200:]


async def one(rows: list[object], number: int, host: str, port: int, what: str) -> None:
    sent = time.time()
    status, said = await exchange(number, host, port, what)
    rows.append((number, "POST" if number % 2 else "GET", sent, time.time() - sent, status, said))


async def main(out: Path, host: str, port: int, what: str, plan: list[tuple[float, float]]) -> None:
    rows: list[object] = []
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    tasks = [asyncio.create_task(one(rows, number, host, port, what)) async for number in due_numbers(plan, told)]
    await asyncio.gather(*tasks)
    out.write_text(json.dumps(rows))


async def due_numbers(plan: list[tuple[float, float]], told: asyncio.Event) -> AsyncIterator[int]:
    """The number of each request at the time when it is due."""
    chance, number, due = random.Random(SEED), 0, time.time()
    for seconds, rate in plan:
        end = due + seconds
        while (due := due + chance.expovariate(rate)) < end:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(told.wait(), max(0, due - time.time()))
            if told.is_set():
                return
            yield number
            number += 1
        due = end


if __name__ == "__main__":
    steps = [(float(seconds), float(rate)) for seconds, rate in (word.split(":") for word in sys.argv[5:])]
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4], steps))
