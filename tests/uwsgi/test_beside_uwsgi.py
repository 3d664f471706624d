"""uWSGI and stanchion behind the same nginx.conf with `uwsgi_pass`: apps get the same environ."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import missing
from support.address import Address
from support.neighbour import accepts
from support.patience import PATIENCE_S, eventually
from support.ports import LOOPBACK, row_of_ports
from support.proxies import Foreground, program, temp_paths
from support.server import APPS, Serve
from support.wire import Wire, request

UWSGI = shutil.which("uwsgi_python3")

pytestmark = [
    pytest.mark.own("uWSGI is the peer"),
    pytest.mark.skipif(not program("nginx"), reason="NOT TESTED BEHIND NGINX: nginx is not installed"),
]

NGINX = """
daemon off; master_process off; worker_processes 1; pid {home}/nginx.pid;
events {{ worker_connections 512; }}
http {{
    access_log off;
    {temp_paths}
    server {{
        listen 127.0.0.1:{port};
        server_name shop.example;
        include /etc/nginx/uwsgi_params;
        location / {{ uwsgi_pass {upstream}; }}
        location /rewritten/ {{ rewrite ^/rewritten/(.*) /to/$1?more=1 break; uwsgi_pass {upstream}; }}
        location /mounted {{
            include /etc/nginx/uwsgi_params;
            uwsgi_param SCRIPT_NAME /mounted; uwsgi_param REMOTE_USER ada;
            uwsgi_param HTTPS on; uwsgi_param my_own $scheme;
            uwsgi_pass {upstream};
        }}
    }}
}}
"""

REQUESTS = {
    "a path": request("GET", "/a"),
    "a query": request("GET", "/a?b=c&d=%20"),
    "an empty query": request("GET", "/a?"),
    "encoded": request("GET", "/%61/b%20c%2Fd/%C3%A9%FF?%61"),
    "dots and slashes": request("GET", "//a/./b/../c"),
    "a form": request("POST", "/form", ["Content-Type: application/x-www-form-urlencoded"], b"a=b"),
    "a large body": request("PUT", "/large", ["Content-Type: text/x"], b"x" * 200_000),
    "chunks": request("POST", "/chunks", ["Transfer-Encoding: chunked"]) + b"3\r\nabc\r\n0\r\n\r\n",
    "HTTP/1.0": request("GET", "/old", version="1.0"),
    "fields": request(
        "GET", "/", ["X-One: 1", "Cookie: a=b", "Accept: */*", "X-Empty:", "Authorization: Basic YWRhOng="]
    ),
    "a field twice": request("GET", "/", ["X-Two: 1", "X-Two: 2"]),
    "fields of one hop": request("GET", "/", ["Connection: keep-alive", "TE: trailers"]),
    "an absolute target": request("GET", "http://other.example/a?b"),
    "another method": request("PROPFIND", "/"),
    "rewritten": request("GET", "/rewritten/x?y"),
    "mounted": request("GET", "/mounted/x"),
}

OURS = ("stanchion.", "gunicorn.", "wsgi.early_hints")
NOT_THE_SAME = {
    # uWSGI's own, and ours.
    *("uwsgi.version", "uwsgi.node", "wsgi.multithread", "wsgi.multiprocess", "wsgi.errors", "wsgi.input"),
    *("x-wsgiorg.fdevent.readable", "x-wsgiorg.fdevent.writable", "x-wsgiorg.fdevent.timeout", "wsgi.file_wrapper"),
    *("RAW_URI", "SERVER_SOFTWARE", "HTTP_X_REQUEST_ID", "HTTP_X_REQUEST_START", "wsgi.input_terminated"),
    # The client's and nginx's ports, and nginx's root directory.
    *("REMOTE_PORT", "SERVER_PORT", "DOCUMENT_ROOT"),
}


@contextlib.contextmanager
def peer() -> Iterator[Address]:
    assert UWSGI
    with row_of_ports(1) as port:
        address = Address(LOOPBACK, port)
        command = [UWSGI, "--uwsgi-socket", f"{LOOPBACK}:{port}", "--chdir", str(APPS), "--module", "echo:raw"]
        command += ["--need-app", "--disable-logging", "--buffer-size", "32768", "--die-on-term"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            eventually(accepts(address), "uWSGI accepts")
            yield address
        finally:
            process.kill()
            process.wait(PATIENCE_S)


def seen_by(upstream: Address, home: Path) -> dict[str, Any]:
    """The app's answer to each of the requests, through an nginx in front of this server."""
    with row_of_ports(1) as port:
        place = f"{upstream.host}:{upstream.port}"
        config = NGINX.format(home=home, temp_paths=temp_paths(home), port=port, upstream=place)
        nginx = Foreground("nginx", home, config, port)
        try:
            nginx.wait()
            return {name: seen(nginx.address, sent) for name, sent in REQUESTS.items()}
        finally:
            nginx.stop()


def seen(address: Address, sent: bytes) -> dict[str, Any]:
    with Wire.connect(address) as wire:
        wire.send(sent)
        answer: dict[str, Any] = wire.response().json()
    answer.pop("types")
    kept = {key: value for key, value in answer["environ"].items() if key not in NOT_THE_SAME}
    answer["environ"] = {key: value for key, value in kept.items() if not key.startswith(OURS)}
    return answer


def test_apps_are_told_the_same(serve: Serve, tmp_path: Path) -> None:
    if why := missing.allowed("" if UWSGI else "NOT TESTED BESIDE UWSGI: uwsgi_python3 is not installed"):
        pytest.skip(why)
    with peer() as address:
        there = seen_by(address, tmp_path / "there")
    here = seen_by(serve("echo:raw", "--protocol", "uwsgi").address, tmp_path / "here")
    for name in REQUESTS:
        expected = there[name]["environ"]
        # It leaves out a name that is empty, which PEP 3333 allows.
        expected.setdefault("SCRIPT_NAME", "")
        # The packet itself says how long the message is and of what type.
        for said_twice in ("HTTP_TRANSFER_ENCODING", "HTTP_CONTENT_LENGTH", "HTTP_CONTENT_TYPE"):
            expected.pop(said_twice, None)
        if name == "a field twice":
            assert expected["HTTP_X_TWO"] == "2", "of a list it shows the last"
            expected["HTTP_X_TWO"] = "1,2"
        assert here[name] == there[name], name
