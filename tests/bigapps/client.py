"""A client with cookies that asks one server what an application's file lists, in its order."""

import http.client
import json
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from wsproto.utilities import ProtocolError

from bigapps.application import Ask
from support.address import Address
from support.websocket import END, WebSocket
from support.wire import BrokenOff, Wire

ASK_WITHIN_S = 90
"""The client waits so long for one answer: the cores may be busy, and an import may lie before it."""
LINES_MAX = 5000
"""The most lines of a stream whose last line never comes."""


@dataclass(frozen=True)
class Answer:
    """An answer of a server, or in `trouble` why none came."""

    status: int = 0
    fields: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    trouble: str = ""

    @property
    def head(self) -> str:
        return "".join(f"{name}: {value}\n" for name, value in self.fields)


class Client:
    """Cookies, and what was taken from earlier answers."""

    def __init__(self, address: Address, home: Path) -> None:
        self._address = address
        self._home = home
        self._cookies: dict[str, str] = {}
        self.taken: dict[str, str] = {}

    def one(self, ask: Ask) -> Answer:
        """The answer, from which names and cookies are kept."""
        try:
            answer = self._hear(ask) if ask.kind == "websocket" else self._send(ask)
        except (OSError, http.client.HTTPException, ProtocolError, BrokenOff, ValueError) as error:
            return Answer(trouble=repr(error))
        for name, value in answer.fields:
            if name.lower() == "set-cookie":
                cookie, _, content = value.partition(";")[0].partition("=")
                self._cookies[cookie.strip()] = self.taken[cookie.strip()] = content
        for name, pattern in ask.take.items():
            found = re.search(pattern, f"{answer.head}\n{answer.body.decode(errors='replace')}")
            if found:
                self.taken[name] = found[1]
        return answer

    def _send(self, ask: Ask) -> Answer:
        headers, body = self._body(ask)
        connection = http.client.HTTPConnection(self._address.host, self._address.port, timeout=ASK_WITHIN_S)
        try:
            # Nothing is added and nothing mended: the target goes out as it stands in the file.
            method = ask.method or ("GET" if body is None else "POST")
            connection.putrequest(method, self._filled(ask.path), skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            with connection.getresponse() as response:
                content = lines(response, ask.until) if ask.kind == "stream" else response.read()
                return Answer(response.status, response.getheaders(), content)
        finally:
            connection.close()

    def _body(self, ask: Ask) -> tuple[dict[str, str], bytes | None]:
        headers = {name: self._filled(value) for name, value in ask.headers.items()}
        if self._cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        form = {name: self._filled(value) for name, value in (ask.form or {}).items()}
        if ask.file:
            boundary = secrets.token_hex(16)
            headers["Content-Type"] = f"multipart/form-data; boundary={boundary}"
            return headers, multipart(boundary, form, ask.file, self._content(ask.file))
        if ask.form is not None:
            return {"Content-Type": "application/x-www-form-urlencoded", **headers}, urlencode(form).encode()
        if ask.json is not None:
            return {"Content-Type": "application/json", **headers}, self._filled(json.dumps(ask.json)).encode()
        return headers, None if ask.body is None else self._filled(ask.body).encode()

    def _content(self, file: dict[str, Any]) -> bytes:
        if "path" in file:
            return (self._home / file["path"]).read_bytes()
        # The lines all differ, so that a byte that is lost or doubled anywhere shows.
        line_count = file["bytes"] // 16
        return b"".join(b"%015d\n" % number for number in range(line_count))

    def _hear(self, ask: Ask) -> Answer:
        wire = Wire(self._address.connect(ASK_WITHIN_S))
        try:
            socket = WebSocket(None, self._filled(ask.path), tuple(ask.subprotocols), wire=wire)
            heard = []
            for text in ask.send:
                socket.text(self._filled(text))
            while socket.status == 101 and len(heard) < ask.hear:
                heard.append(socket.hear())
                if heard[-1] == END:
                    break
        finally:
            wire.close()
        fields = [("sec-websocket-protocol", socket.subprotocol or "")]
        return Answer(socket.status, fields, "\n".join(map(str, heard)).encode() or socket.body)

    def _filled(self, text: str) -> str:
        """The text with the taken value in place of each `{name}`; other braces stay, as in JSON."""
        for name, value in self.taken.items():
            text = text.replace(f"{{{name}}}", value)
        return text


def lines(response: http.client.HTTPResponse, until: str) -> bytes:
    """The lines of a stream, up to the first one that matches; after that the client leaves."""
    came = []
    while line := response.readline():
        came.append(line)
        if re.search(until, line.decode(errors="replace")):
            break
        if len(came) >= LINES_MAX:
            raise ValueError(f"none of {LINES_MAX} lines matches {until!r}")
    return b"".join(came)


def multipart(boundary: str, form: dict[str, str], file: dict[str, Any], content: bytes) -> bytes:
    """RFC 7578."""
    parts = [f'form-data; name="{name}"\r\n\r\n{value}'.encode() for name, value in form.items()]
    kind = file.get("type", "application/octet-stream")
    head = f'form-data; name="{file["field"]}"; filename="{file["name"]}"\r\nContent-Type: {kind}\r\n\r\n'
    parts.append(head.encode() + content)
    begun = [f"--{boundary}\r\nContent-Disposition: ".encode() + part + b"\r\n" for part in parts]
    return b"".join(begun) + f"--{boundary}--\r\n".encode()
