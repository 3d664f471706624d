"""Whether what a server made of some bytes is what RFC 9112 says they are."""

import hashlib
import re
from dataclasses import dataclass

from support.rfc9112 import Reading, Request, read, resource
from support.tap import Talk

HEAD = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) [^\r\n]*\r\n((?:[^\r\n]+\r\n)*)\r\n")
SHOWN_BYTES = 1500


@dataclass(frozen=True)
class Saw:
    """The request as the app saw it (`echo:noting`)."""

    method: bytes
    target: bytes
    length: int
    sha256: str
    meant: bytes
    """The proxy's mark."""

    @classmethod
    def parse(cls, text: str) -> "Saw":
        method, target, length, sha256, meant = text.split(" ")
        mark = b"" if meant == "-" else bytes.fromhex(meant)
        return cls(method.encode(), bytes.fromhex(target), int(length), sha256, mark)

    def is_of(self, request: Request) -> bool:
        return (self.method, resource(self.target), self.length, self.sha256, self.meant) == (
            request.method,
            request.target,
            len(request.body),
            hashlib.sha256(request.body).hexdigest(),
            b",".join(request.all(b"x-meant")),
        )


@dataclass
class Answer:
    status: int
    saw: Saw | None
    closes: bool


def answers(data: bytes) -> list[Answer]:
    """The answers on a connection. The app's have no body, and a refusal is the last: so heads tell them apart."""
    found: list[Answer] = []
    at = 0
    while at < len(data):
        head = HEAD.match(data, at)
        assert head, f"no answer: {data[at : at + SHOWN_BYTES]!r}"
        at = head.end()
        status = int(head[1])
        if status == 100:
            continue
        fields = {
            name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in head[2].splitlines())
        }
        saw = fields.get(b"x-saw")
        found.append(Answer(status, Saw.parse(saw.decode()) if saw else None, fields.get(b"connection") == b"close"))
        if not saw:
            body = data[at:]
            assert body in (b"", body[: int(fields[b"content-length"])]), f"more than the refusal: {body!r}"
            break
    return found


def complaint(talk: Talk) -> str:
    """How a server misread a client's bytes, in words, or "" if it did not."""
    reading = read(bytes(talk.asked))
    got = answers(bytes(talk.answered))
    found = _wrong(reading, got)
    if not found:
        return ""
    asked, answered = (repr(bytes(part[:SHOWN_BYTES])) for part in (talk.asked, talk.answered))
    return f"{found}\n  read as: {reading}\n  asked: {asked}\n  answered: {answered}"


def _wrong(reading: Reading, got: list[Answer]) -> str:
    requests = reading.requests
    for place, answer in enumerate(got):
        if answer.saw:
            if place >= len(requests):
                return f"it served a request {place} that is none: {answer.saw}"
            if not answer.saw.is_of(requests[place]):
                return f"it read request {place} differently: {answer.saw}"
        elif not answer.closes:
            return f"the connection goes on after refusal {place}"
        elif place < len(requests):
            return "" if requests[place].choices else f"it refused request {place} with {answer.status}"
        else:
            return "" if reading.refused or reading.incomplete else f"it refused nothing with {answer.status}"
    if len(got) < len(requests):
        return f"it left request {len(got)} without an answer"
    return "it refused without a word" if reading.refused else ""
