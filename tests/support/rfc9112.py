"""The meaning of some bytes by RFC 9112, read by the letter and without any code of the server's.

`read` takes all that one side of a connection sent. Where the RFC leaves a choice, the request says which (`choices`),
and a server may refuse it; if the server takes it, it has one meaning. Bytes that must be refused have no meaning.
Where a request could be smuggled past another server, this file leaves no choice, though the RFC leaves one: the
request must be refused. Bytes of a target that clients in use do not encode, and that end no word and no line, leave no
choice either: they must be served.
"""

import ipaddress
import re
from dataclasses import dataclass, field

TCHAR = rb"!#$%&'*+.^_`|~0-9A-Za-z-"  # RFC 9110 section 5.6.2
TOKEN = re.compile(rb"[%b]+" % TCHAR)
CONVENTIONAL_METHOD = re.compile(rb"[^a-z#]{3,20}")  # as gunicorn has it
FIELD_TEXT = re.compile(rb"[\t -~\x80-\xff]*")  # RFC 9110 section 5.5
PATH_AND_QUERY = re.compile(rb"/[!-\"$-~\x80-\xff]*")  # more than RFC 3986 section 3.3 has, but no "#"
ABSOLUTE = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([/?#].*)?", re.DOTALL)
REQUEST_LINE = re.compile(rb"([^ ]*) ([^ ]*) ([^ ]*)", re.DOTALL)
REG_NAME = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*")
IP_FUTURE = re.compile(rb"v[0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+", re.IGNORECASE)
WHITESPACE = rb"[ \t]*"
QUOTED = rb'"(?:[\t !#-[\]-~\x80-\xff]|\\[\t -~\x80-\xff])*"'  # RFC 9110 section 5.6.4
EXTENSIONS = re.compile(
    rb"(?:%b;%b[%b]+(?:%b=%b(?:[%b]+|%b))?)*" % (WHITESPACE, WHITESPACE, TCHAR, WHITESPACE, WHITESPACE, TCHAR, QUOTED)
)

LENGTH_BITS = 64
EMPTY_LINES = 1
"""A server should ignore at least so many before a request (RFC 9112 section 2.2)."""
PORT_MAX = 65535
GENEROUS_LINE_BYTES = 4000
GENEROUS_FIELDS = 100
GENEROUS_FIELD_BYTES = 8000
GENEROUS_EXTENSION_BYTES = 1000
"""A server may refuse requests beyond these for their size."""


class Refused(Exception):
    """It must be refused."""


class Incomplete(Exception):
    """The bytes end before the message does."""


@dataclass
class Request:
    """One request, and what a server may take offence at."""

    method: bytes
    target: bytes
    """The target as `resource` gives it."""
    minor_version: int = 1
    fields: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    choices: list[str] = field(default_factory=list)
    """Why a server may refuse it although it is valid; empty if it must be served."""

    def all(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.fields if key.lower() == name]

    def options(self) -> set[bytes]:
        """The options of Connection (RFC 9110 section 7.6.1)."""
        return {option.strip(b" \t").lower() for value in self.all(b"connection") for option in value.split(b",")}

    def is_last(self) -> bool:
        """RFC 9112 section 9.3."""
        options = self.options()
        return b"close" in options or (self.minor_version == 0 and b"keep-alive" not in options)


@dataclass
class Reading:
    """The requests on a connection, and how it ends."""

    requests: list[Request] = field(default_factory=list)
    refused: str = ""
    """Why what follows the requests must be refused."""
    incomplete: bool = False
    """Whether a message begins after the requests that does not end: it may be refused, and must not be served."""


def read(data: bytes) -> Reading:
    reading = Reading()
    reader = _Reader(data)
    while True:
        reader.choices = []
        try:
            if reader.at_end():
                return reading
            request = reader.request()
        except Refused as refused:
            reading.refused = str(refused)
            return reading
        except Incomplete:
            reading.incomplete = True
            return reading
        reading.requests.append(request)
        if request.is_last():
            return reading


def resource(target: bytes) -> bytes:
    """A target without what two readers of it may spell differently: no fragment, a scheme in lower case, and a path in
    absolute-form (RFC 9110 section 4.2.3)."""
    target = target.partition(b"#")[0]
    absolute = ABSOLUTE.fullmatch(target)
    if not absolute:
        return target
    rest = absolute[3] or b""
    return absolute[1].lower() + b"://" + absolute[2] + (rest if rest.startswith(b"/") else b"/" + rest)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.choices: list[str] = []

    def at_end(self) -> bool:
        """Whether nothing comes any more, but perhaps empty lines."""
        for count in range(len(self._data)):
            if not (empty := re.compile(rb"\r?\n").match(self._data, self._at)):
                break
            self._at = empty.end()
            if count >= EMPTY_LINES or len(empty[0]) == 1:
                self.choices.append("more empty lines than one, or a lone LF")
        return self._at == len(self._data)

    def request(self) -> Request:
        request = self._request_line(self._line_of_head())
        while line := self._line_of_head():
            request.fields.append(self._field(line, GENEROUS_FIELD_BYTES))
        if len(request.fields) > GENEROUS_FIELDS:
            self.choices.append("many fields")
        self._check_host(request)
        self._check_expectation(request)
        request.choices = self.choices
        request.body = self._body(request)
        return request

    def _up_to_lf(self) -> bytes:
        end = self._data.find(b"\n", self._at)
        if end < 0:
            self._refuse_what_no_line_holds(self._data[self._at :].removesuffix(b"\r"))
            raise Incomplete
        line = self._data[self._at : end]
        self._at = end + 1
        return line

    def _line_of_head(self) -> bytes:
        """RFC 9112 section 2.2: a recipient may take a lone LF for the end of a line, and must not take a lone CR."""
        line = self._up_to_lf()
        if line.endswith(b"\r"):
            line = line[:-1]
        else:
            self.choices.append("a lone LF ends a line")
        self._refuse_what_no_line_holds(line)
        return line

    def _refuse_what_no_line_holds(self, line: bytes) -> None:
        if not FIELD_TEXT.fullmatch(line):
            raise Refused("a control character in a line")

    def _request_line(self, line: bytes) -> Request:
        if len(line) > GENEROUS_LINE_BYTES:
            self.choices.append("a long request line")
        parts = REQUEST_LINE.fullmatch(line)
        if not parts or b"\t" in line:
            raise Refused("not three words with single spaces")
        method, target, version = parts.groups()
        if not TOKEN.fullmatch(method):
            raise Refused("the method is no token")
        if not CONVENTIONAL_METHOD.fullmatch(method):
            self.choices.append("an unconventional method")
        found = re.fullmatch(rb"HTTP/1\.([0-9])", version)
        if not found:
            raise Refused("not HTTP/1")
        if int(found[1]) > 1:
            self.choices.append("a later version")
        self._check_target(method, target)
        return Request(method, resource(target), int(found[1]))

    def _check_target(self, method: bytes, target: bytes) -> None:
        """RFC 9112 section 3.2."""
        if method == b"CONNECT":
            raise Refused("CONNECT, which is for proxies")
        if target == b"*":
            if method != b"OPTIONS":
                raise Refused("* for another method than OPTIONS")
            return
        if target.startswith(b"/"):
            self._check_path(target)
            return
        absolute = ABSOLUTE.fullmatch(target)
        if not absolute:
            raise Refused("a target of no form")
        scheme, authority, rest = absolute.groups()
        if scheme.lower() not in (b"http", b"https"):
            self.choices.append("another scheme")
        if b"@" in authority:
            raise Refused("user information")
        if not authority or authority.startswith(b":"):
            raise Refused("no host in the target")
        self._check_authority(authority)
        self._check_path((b"" if (rest or b"").startswith(b"/") else b"/") + (rest or b""))

    def _check_path(self, path: bytes) -> None:
        if not PATH_AND_QUERY.fullmatch(path):
            self.choices.append("a fragment, which no target has")

    def _check_authority(self, authority: bytes) -> None:
        """uri-host [ ":" port ] (RFC 3986 section 3.2)."""
        parts = re.fullmatch(rb"(\[[^]]*\]|[^:\[\]]*)(?::([0-9]*))?", authority, re.DOTALL)
        if not parts:
            raise Refused("no host and port")
        host, port = parts[1], parts[2] or b""
        if port and int(port) > PORT_MAX:
            raise Refused("no such port")
        if len(port) > len(str(PORT_MAX)):
            self.choices.append("a port with zeros in front")
        if host.startswith(b"["):
            self._check_ip_literal(host[1:-1])
        elif not REG_NAME.fullmatch(host):
            raise Refused("no host")
        if not host or b"%" in host:
            self.choices.append("an unusual host")

    def _check_ip_literal(self, inside: bytes) -> None:
        if IP_FUTURE.fullmatch(inside):
            self.choices.append("an address of the future")
            return
        try:
            # Python takes a zone, which RFC 3986 does not have.
            ipaddress.IPv6Address(inside.decode("ascii").replace("%", "no zone"))
        except ValueError:
            raise Refused("no IPv6 address") from None

    def _field(self, line: bytes, generous_bytes: int) -> tuple[bytes, bytes]:
        """field-name ":" OWS field-value OWS (RFC 9112 section 5)."""
        if len(line) > generous_bytes:
            self.choices.append("a long field")
        name, colon, value = line.partition(b":")
        if not colon or not TOKEN.fullmatch(name):
            raise Refused("not a field")
        return name, value.strip(b" \t")

    def _check_host(self, request: Request) -> None:
        hosts = request.all(b"host")
        if len(hosts) > 1 or (not hosts and request.minor_version > 0):
            raise Refused("not one Host")
        for host in hosts:
            self._check_authority(host)

    def _check_expectation(self, request: Request) -> None:
        expectations = request.all(b"expect")
        if any(value.lower() != b"100-continue" for value in expectations):
            self.choices.append("an expectation that may not be known")

    def _body(self, request: Request) -> bytes:
        """RFC 9112 section 6.3."""
        codings, lengths = request.all(b"transfer-encoding"), request.all(b"content-length")
        if codings:
            if [coding.lower() for coding in codings] != [b"chunked"]:
                raise Refused("a coding other than chunked, once")
            if lengths:
                raise Refused("a length with a coding")
            if request.minor_version == 0:
                raise Refused("a coding in HTTP/1.0")
            return self._chunks()
        if not lengths:
            return b""
        return self._take(self._length(b",".join(lengths)))

    def _length(self, value: bytes) -> int:
        """A list of equal ones may be taken for one (RFC 9110 section 8.6)."""
        members = [member.strip(b" \t") for member in value.split(b",")]
        if not all(re.fullmatch(rb"[0-9]+", member) for member in members):
            raise Refused("a length that is no number")
        if len({int(member) for member in members}) > 1:
            raise Refused("lengths that differ")
        if len(members) > 1:
            self.choices.append("a length told more than once")
        length = int(members[0])
        if length >= 1 << LENGTH_BITS:
            raise Refused("a length beyond 64 bits")
        return length

    def _take(self, length: int) -> bytes:
        if self._at + length > len(self._data):
            raise Incomplete
        body = self._data[self._at : self._at + length]
        self._at += length
        return body

    def _chunks(self) -> bytes:
        """RFC 9112 section 7.1: each line ends in CR LF, or one server's line is another's half."""
        body = bytearray()
        while size := self._chunk_size():
            body += self._take(size)
            if not b"\r\n".startswith(self._data[self._at : self._at + 2]):
                raise Refused("data longer than its chunk")
            self._take(2)
        while line := self._line_between_chunks():
            self._field(line, GENEROUS_FIELD_BYTES)
        return bytes(body)

    def _chunk_size(self) -> int:
        line = self._line_between_chunks()
        digits = re.compile(rb"[0-9A-Fa-f]*").match(line)
        assert digits
        if not digits[0]:
            raise Refused("a chunk without a size")
        size = int(digits[0], 16)
        if size >= 1 << LENGTH_BITS:
            raise Refused("a size beyond 64 bits")
        if len(digits[0]) * 4 > LENGTH_BITS:
            self.choices.append("zeros before a size")
        if not EXTENSIONS.fullmatch(line, digits.end()):
            raise Refused("no chunk extension")
        if len(line) - digits.end() > GENEROUS_EXTENSION_BYTES:
            self.choices.append("a long chunk extension")
        return size

    def _line_between_chunks(self) -> bytes:
        line = self._up_to_lf()
        if not line.endswith(b"\r"):
            raise Refused("a lone LF between chunks")
        self._refuse_what_no_line_holds(line[:-1])
        return line[:-1]
