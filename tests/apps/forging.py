"""Writes forged log lines to each message socket that it has: lines that only the server's own processes may send."""

import json
import os
import socket
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

TEXTS = ("path", "query", "protocol", "scheme", "reason", "remote_addr", "server_name", "server_port")
NUMBERS = ("time_us", "took_us", "status", "bytes", "remote_port", "pid")
ACCESS = {
    "access": {
        **dict.fromkeys(TEXTS, ""),
        **dict.fromkeys(NUMBERS, 1),
        "method": "GET",
        "target": "/forged",
        "protocol": "HTTP/1.1",
        "fields": [],
        "answer": [],
        "atoms": {},
    }
}
ERROR = {"error": {"time_us": 1_700_000_000_000_000, "level": 40, "text": "forged by an app"}}


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            found = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue
        with found:
            if found.type == socket.SOCK_SEQPACKET:
                for forged in (ACCESS, ERROR):
                    found.send(json.dumps(forged, separators=(",", ":")).encode() + b"\n", socket.MSG_DONTWAIT)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]
