"""Requests that are almost right, and some that are: what a seed makes is always the same."""

import random
import re
from collections.abc import Callable, Sequence

CHANGES = [0, 1, 1, 1, 2, 3]
"""How many changes to make; with 0, the seed only decides which requests follow each other."""
REQUESTS_MAX = 3
BYTES = b'\r\n\0 \t:;,/?#@[]%+-_.="\\<>{}|`^0159aAfF\x0b\x0c\x1f\x7f\x80\x85\xa0\xff'
"""Bytes that have a meaning to some parser."""

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: test\r\n\r\n"
PIECES = [
    b"\r\n", b"\n", b"\r", b"\n\r", b"\r\r\n", b"\r\n\r\n", b"\n\n", b"\r\n ", b"\r\n\t", b"  ", b"\0", b"\x0b",
    b"\xe2\x80\xa8", b"chunked", b"chunked, ", b", chunked", b"identity", b"gzip, ", b"0\r\n\r\n", b"1\r\nz\r\n",
    b"5\r\nhello\r\n0\r\n\r\n", b"0x", b"+", b"-", b"_", b"00", b"10000000000000000", b"ffffffffffffffff",
    b"fffffffffffffffe", b"18446744073709551616", b";a", b";a=b", b';a="b"', b';a="\r\n"', b'; a = "\\""', b";",
    b"=", b'"', b"\\", b" :", b":", b"http://test", b"HTTP://a:80", b"http://u@test/", b"*", b"%00", b"%", b"#f",
    b"?q", b"//", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", SMUGGLED,
]  # fmt: skip
FIELDS = [
    b"Content-Length: 0", b"Content-Length: 5", b"Content-Length: 05", b"Content-Length: +5",
    b"Content-Length: 5, 5", b"Content-Length: 5, 6", b"Content-Length:", b"Content-Length: 18446744073709551615",
    b"Content-Length: 18446744073709551621", b"Content-Length : 5", b"Content_Length: 5", b"Content-Length: 5 ",
    b"Content-Length:\t5", b"Content-Length: 5\x0b", b"Transfer-Encoding: chunked", b"transfer-encoding:chunked",
    b"Transfer-Encoding: \tchunked \t", b"Transfer-Encoding : chunked", b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding: identity, chunked", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding:\x0bchunked",
    b"Transfer-Encoding: \"chunked\"", b"Transfer-Encoding: chunked;q=1", b"Transfer-Encoding: ",
    b"Transfer-Encoding: xchunked", b"Transfer_Encoding: chunked", b"Transfer-Encoding: identity",
    b"Transfer-Encoding\0: chunked", b"Transfer-Encoding:\r\n chunked", b"X: y\rTransfer-Encoding: chunked",
    b"X: y\nTransfer-Encoding: chunked", b" X: folded", b"Host: other", b"Host: test:65536", b"Host: test:80:80",
    b"Host: u@test", b"Host: [::1]:80", b"Host: [::1", b"Host: te st", b"Host:", b"Connection: close",
    b"Connection: keep-alive", b"Connection: Content-Length", b"Connection: Transfer-Encoding",
    b"Connection: close, keep-alive", b"Keep-Alive: timeout=5", b"Expect: 100-continue", b"Expect: 100-Continue",
    b"Expect: 200-ok", b"Upgrade: h2c", b"TE: trailers", b"Trailer: Content-Length", b"X-A: \xff", b"X-A: a\x01b",
    b"X A: b", b"X(A): b", b": b", b"X",
]  # fmt: skip
METHODS = "GET HEAD POST PUT OPTIONS TRACE DELETE CONNECT get G\xe9T M-SEARCH".encode("latin-1").split(b" ")
LINE_ENDS = [b"\n", b"\r", b"\n\r", b"\r\r\n", b"", b"\r\n\r\n", b" \r\n", b"\0\r\n"]

TARGETS = [
    b"/", b"/a/b?c=d&e", b"/%41%2f", b"/?", b"//x", b"/;a=b", b"http://test/x", b"/:80@", b'/a<b>?{"c":`|}',
    b"/\\a^?<\\>", b"/caf\xc3\xa9?\xe9", b"http://test/\"?{}",
]  # fmt: skip
USUAL_FIELDS = [
    b"Accept: */*",
    b"X-Empty:",
    b"X-A: a, b",
    b'Cookie: a=b; c="d"',
    b"Connection: keep-alive",
    b"x-b:\tc\t",
]
EXTENSIONS = [b"", b"", b"", b";a", b";a=b", b'; a = "b\\";"']

Mutation = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def mutated(corpus: Sequence[bytes], seed: str) -> bytes:
    """The bytes that `seed` makes of some request of the corpus, or of usual ones."""
    rng = random.Random(seed)
    usual = b"".join(_usual(rng) for _ in range(rng.randint(1, REQUESTS_MAX)))
    data = rng.choice([usual, rng.choice(corpus)])
    for _ in range(rng.choice(CHANGES)):
        data = rng.choice(MUTATIONS)(rng, data, corpus)
    return data


def _usual(rng: random.Random) -> bytes:
    """A request that is right."""
    body = rng.randbytes(rng.choice([0, 1, 5, 16, 300]))
    framing = rng.choice([b"", b"length", b"chunked"])
    fields = [b"Host: test", *rng.sample(USUAL_FIELDS, rng.randint(0, 3))]
    if framing == b"length":
        fields.append(b"Content-Length: %d" % len(body))
    elif framing == b"chunked":
        fields.append(b"Transfer-Encoding: chunked")
        body = _chunks(rng, body)
    else:
        body = b""
    rng.shuffle(fields)
    line = b" ".join([rng.choice([b"GET", b"POST", b"PUT", b"HEAD"]), rng.choice(TARGETS), b"HTTP/1.1"])
    return b"\r\n".join([line, *fields, b"", b""]) + body


def _chunks(rng: random.Random, body: bytes) -> bytes:
    coded = b""
    while body:
        length = rng.randint(1, len(body))
        size = rng.choice([b"%x", b"%X", b"0%x"]) % length
        coded += size + rng.choice(EXTENSIONS) + b"\r\n" + body[:length] + b"\r\n"
        body = body[length:]
    return coded + b"0\r\n" + rng.choice([b"", b"", b"X-Sum: 1\r\n"]) + b"\r\n"


def _place(rng: random.Random, data: bytes) -> int:
    """A place in it: half the time one of those where something begins or ends."""
    edges = [found.start() for found in re.finditer(rb"[\r\n :;,]", data)]
    return rng.choice(edges) + rng.randint(0, 1) if edges and rng.random() < 0.5 else rng.randint(0, len(data))


def _change_byte(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    at = _place(rng, data)
    return data[:at] + bytes([rng.choice(BYTES)]) + data[at + 1 :]


def _insert_byte(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    at = _place(rng, data)
    return data[:at] + bytes([rng.choice(BYTES)]) + data[at:]


def _insert_piece(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    at = _place(rng, data)
    return data[:at] + rng.choice(PIECES) + data[at:]


def _cut_out(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    at = _place(rng, data)
    return data[:at] + data[at + rng.choice([1, 1, 2, 4, 16]) :]


def _repeat(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    at = _place(rng, data)
    length = rng.choice([1, 2, 5, 20])
    return data[: at + length] + data[at:]


def _insert_field(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    ends = [found.end() for found in re.finditer(rb"\r\n", data)]
    at = rng.choice(ends[:4]) if ends else 0
    return data[:at] + rng.choice(FIELDS) + b"\r\n" + data[at:]


def _change_line_end(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    ends = [found.span() for found in re.finditer(rb"\r\n", data)]
    if not ends:
        return data
    start, end = rng.choice(ends)
    return data[:start] + rng.choice(LINE_ENDS) + data[end:]


def _swap_lines(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    lines = data.split(b"\r\n")
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"\r\n".join(lines)


def _change_digit(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    digits = [found.start() for found in re.finditer(rb"[0-9]", data)]
    if not digits:
        return data
    at = rng.choice(digits)
    return data[:at] + rng.choice([b"0", b"1", b"2", b"4", b"6", b"9", b"a", b"10"]) + data[at + 1 :]


def _change_method(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    return rng.choice(METHODS) + data[data.find(b" ") :]


def _splice(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    other = rng.choice(corpus)
    return data[: _place(rng, data)] + other[_place(rng, other) :]


def _follow(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    return data + rng.choice(corpus)


MUTATIONS: list[Mutation] = [
    _change_byte, _insert_byte, _insert_piece, _cut_out, _repeat, _insert_field, _insert_field, _change_line_end,
    _swap_lines, _change_digit, _change_method, _splice, _follow,
]  # fmt: skip
