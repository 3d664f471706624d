"""Clients of HTTP/2 in the mixed load: several requests at once on a connection, and some that leave."""

import contextlib
import random

import h2.exceptions

from support.havoc import HARM_SHARE, HARMFUL, HARMLESS, SLOW_PAUSE_S, SLOW_SHARE, Asked, Load
from support.http2 import LAST_OF_ALL, Answer, Talk
from support.patience import PATIENCE_S

STREAMS_MAX = 6
"""The most streams at once on a connection."""
INTERNAL_ERROR = 2


def client(load: Load, number: int) -> None:
    """Batches of requests on a connection that stays until the server says that it is to end."""
    dice = random.Random(load.seed * 1000 + number)
    talk: Talk | None = None
    count = 0
    while not load.over.is_set():
        batch = []
        for _ in range(dice.randint(1, STREAMS_MAX)):
            count += 1
            paths = HARMFUL if dice.random() < HARM_SHARE else HARMLESS
            batch.append(Asked(dice, f"{number}-{count}", paths))
        try:
            talk = talk or Talk(load.server.address, timeout_s=3 * PATIENCE_S)
        except OSError as error:
            load.lose(batch[0], error)
            continue
        talk.pause_s = SLOW_PAUSE_S if dice.random() < SLOW_SHARE else 0
        if not ask(load, talk, batch):
            talk.sock.close()
            talk = None
    if talk:
        talk.sock.close()


def ask(load: Load, talk: Talk, batch: list[Asked]) -> bool:
    """Whether the connection may go on."""
    begun: list[tuple[Asked, int]] = []
    why: Exception = OSError("never begun")
    try:
        for asked in batch:
            # Appended before it is sent: of a request that is not sent whole, too, how far it gets is unknown.
            begun.append((asked, talk.frames.get_next_available_stream_id()))
            talk.begin(asked.target, method="POST" if asked.body else "GET", ends=not asked.body)
        upload(talk, {number: memoryview(asked.body) for asked, number in begun if asked.body})
        for _, number in begun:
            talk.answer(number)
        may_go_on = talk.goodbye is None
    except OSError as error:
        why, may_go_on = error, False
    for asked, number in begun:
        settle(load, talk, asked, number, why)
    return may_go_on


def upload(talk: Talk, bodies: dict[int, memoryview]) -> None:
    """Each as far as the server takes it: one that is held holds up no other."""
    while bodies:
        sent = False
        for number, rest in list(bodies.items()):
            # It may have been answered before it was whole, and the server wants no more of it.
            if talk.answers[number].reset is not None:
                del bodies[number]
                continue
            with contextlib.suppress(h2.exceptions.NoSuchStreamError):
                room = talk.frames.local_flow_control_window(number)
                talk.say(number, rest[:room], ends=room >= len(rest))
                sent |= room > 0
                bodies[number] = rest[room:]
                if room < len(rest):
                    continue
            del bodies[number]
        if not sent and bodies:
            talk.hear_on()


def settle(load: Load, talk: Talk, asked: Asked, number: int, why: Exception) -> None:
    answer = talk.answers.get(number, Answer())
    if answer.is_over:
        asked.settle(load.account, answer)
    elif answer.reset == INTERNAL_ERROR:
        load.account.end("broken_off")
    elif answer.reset is not None:
        load.account.fail(f"{asked.target}: reset for {answer.reset}")
    elif talk.goodbye and number <= talk.goodbye.last_stream_id < LAST_OF_ALL:
        load.account.fail(f"{asked.target}: it was to be answered, of {talk.goodbye.last_stream_id} streams: {why!r}")
    else:
        load.lose(asked, why)


def leaver(load: Load, number: int) -> None:
    """Clients that leave, or reset what they have asked, in the middle of a request or of its answer."""
    dice = random.Random(load.seed * 1000 + number)
    count = 0
    while not load.over.is_set():
        count += 1
        asked = Asked(dice, f"{number}-{count}", ("/fine", "/nap", "/echo", "/stream", "/file"))
        load.account.abort(1)
        with contextlib.suppress(OSError, h2.exceptions.NoSuchStreamError), Talk(load.server.address) as talk:
            stream = talk.begin(asked.target, method="POST" if asked.body else "GET", ends=not asked.body)
            if asked.body:
                talk.say(stream, asked.body[: dice.randrange(len(asked.body))], ends=False)
            elif dice.random() < 0.5:
                talk.hear()
            if dice.random() < 0.5:
                talk.reset(stream)
                talk.ping()
