"""gunicorn's settings of how requests are read: the same bytes to it and to us, with the same settings."""

import json
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.server import GUNICORN, STANCHION, Kind, Serve, Server
from support.wire import request

COMPARED = {
    *("REQUEST_METHOD", "SERVER_PROTOCOL", "SCRIPT_NAME", "PATH_INFO", "RAW_URI", "QUERY_STRING"),
    *("CONTENT_LENGTH", "CONTENT_TYPE", "wsgi.url_scheme"),
}
"""Besides all fields."""


def line(text: str, *fields: str) -> bytes:
    return "\r\n".join([text, "Host: test", "Connection: close", *fields, "", ""]).encode("latin-1")


def fields(*lines: str, target: str = "/") -> bytes:
    return line(f"GET {target} HTTP/1.1", *lines)


CASES: Mapping[str, bytes] = {
    "plain": fields("X-A: 1"),
    # ---- Methods
    "get": line("get / HTTP/1.1"),
    "Get": line("Get / HTTP/1.1"),
    "a short method": line("PU / HTTP/1.1"),
    "a method of 20": line("ABCDEFGHIJKLMNOPQRST / HTTP/1.1"),
    "a method of 21": line("ABCDEFGHIJKLMNOPQRSTU / HTTP/1.1"),
    "a method with #": line("PUT# / HTTP/1.1"),
    "a method that is no token": line("GE(T / HTTP/1.1"),
    "options *": line("options * HTTP/1.1"),
    "OPTIONS *": line("OPTIONS * HTTP/1.1"),
    # ---- Versions
    **{f"HTTP/{version}": line(f"GET / HTTP/{version}") for version in ("0.9", "1.0", "1.2", "1.9", "2.0", "3.7")},
    "HTTP/10.1": line("GET / HTTP/10.1"),
    "no version": line("GET /"),
    "http/1.1": line("GET / http/1.1"),
    # ---- Folding
    "folded": fields("X-A: a", " b"),
    "folded with a tab": fields("X-A: a\t ", "\t b", " c"),
    "folded from the start": fields("X-A:", " a"),
    "folded over an empty line": fields("X-A: a", " ", " b"),
    "folded, and the last is empty": fields("X-A: a", " "),
    "a folded field": fields("X-A: a", " X-B: b"),
    "nothing to fold": b"GET / HTTP/1.1\r\n X-A: a\r\nHost: test\r\nConnection: close\r\n\r\n",
    "a folded length": fields("Content-Length:", " 0"),
    "a length folded to more": fields("Content-Length: 0", " 0"),
    "a folded coding": fields("Transfer-Encoding:", " chunked") + b"0\r\n\r\n",
    "a coding folded to another": fields("Transfer-Encoding: gzip,", " chunked") + b"0\r\n\r\n",
    "a folded host": b"GET / HTTP/1.1\r\nHost:\r\n test\r\nConnection: close\r\n\r\n",
    "a control character in a fold": fields("X-A: a", " b\x01"),
    # ---- Spaces before the colon
    "a space": fields("X-A : a"),
    "a tab": fields("X-A\t: a"),
    "a space in a name": fields("X A: a"),
    "a space and no name": fields(" : a"),
    "a length with a space": fields("Content-Length : 0"),
    "a coding with a space": fields("Transfer-Encoding : chunked") + b"0\r\n\r\n",
    # ---- Underscores
    "underscores": fields("X_A: 1"),
    "underscores and the same with a dash": fields("X-A: 1", "X_A: 2"),
    "the same the other way round": fields("X_A: 1", "X-A: 2"),
    "twice": fields("X_A: 1", "X_A: 2"),
    "a length with an underscore": fields("Content_Length: 5"),
    "a coding with an underscore": fields("Transfer_Encoding: chunked"),
    "a type with an underscore": fields("Content_Type: text/plain"),
    "a scheme with an underscore": fields("X_Forwarded_Proto: https"),
    # ---- Fields of forwarders
    "a mount point": fields("SCRIPT_NAME: /app", target="/app/x?y"),
    "a mount point in lower case": fields("script_name: /app", target="/app"),
    "two mount points": fields("SCRIPT_NAME: /a", "SCRIPT_NAME: /app", target="/app/x"),
    "a path outside": fields("SCRIPT_NAME: /app", target="/x"),
    "a path that only begins like it": fields("SCRIPT_NAME: /app", target="/apple"),
    "a path by a field": fields("PATH_INFO: /other"),
    "a user": fields("REMOTE_USER: ada"),
    "a user with a dash": fields("Remote-User: ada"),
    # ---- Schemes
    "proto": fields("X-Forwarded-Proto: https"),
    "PROTO": fields("X-Forwarded-Proto: HTTPS"),
    "protocol": fields("X-Forwarded-Protocol: ssl"),
    "ssl": fields("X-Forwarded-Ssl: on"),
    "agreed": fields("X-Forwarded-Proto: https", "X-Forwarded-Ssl: on"),
    "contradiction": fields("X-Forwarded-Proto: https", "X-Forwarded-Ssl: off"),
    "contradiction in one": fields("X-Forwarded-Proto: https", "X-Forwarded-Proto: http"),
    "another field": fields("Front-End-Https: yes"),
    "both": fields("Front-End-Https: yes", "X-Forwarded-Proto: http"),
}

UNTRUSTED = ("--forwarded-allow-ips", "192.0.2.1")
OWN_SCHEMES = "secure_scheme_headers = {'FRONT-END-HTTPS': 'yes'}\n"
NO_SCHEMES = "secure_scheme_headers = {}\n"
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "defaults": (),
    "untrusted": UNTRUSTED,
    "methods": ("--permit-unconventional-http-method",),
    "methods in upper case": ("--permit-unconventional-http-method", "--casefold-http-method"),
    "upper case alone": ("--casefold-http-method",),
    "versions": ("--permit-unconventional-http-version",),
    "folding": ("--permit-obsolete-folding",),
    "spaces": ("--strip-header-spaces",),
    "folding and spaces": ("--permit-obsolete-folding", "--strip-header-spaces"),
    "refuse": ("--header-map", "refuse"),
    "refuse, untrusted": ("--header-map", "refuse", *UNTRUSTED),
    "dangerous": ("--header-map", "dangerous"),
    "dangerous, untrusted": ("--header-map", "dangerous", *UNTRUSTED),
    "user": ("--forwarder-headers", "SCRIPT_NAME,REMOTE_USER"),
    "user, untrusted": ("--forwarder-headers", "SCRIPT_NAME,REMOTE_USER", *UNTRUSTED),
    "none": ("--forwarder-headers", "NONE"),
    "any": ("--forwarder-headers", "*"),
    "own schemes": ("-c", OWN_SCHEMES),
    "own schemes, untrusted": ("-c", OWN_SCHEMES, *UNTRUSTED),
    "no schemes": ("-c", NO_SCHEMES),
}

Outcome = tuple[int, Mapping[str, str]]


def outcome(server: Server, data: bytes) -> Outcome:
    with server.connect() as wire:
        wire.send(data)
        head, _, body = wire.rest().partition(b"\r\n\r\n")
    status = int(head.split()[1])
    if status != 200:
        return status, {}
    # gunicorn answers in the version that it was asked in, whichever that is, and may send chunks.
    environ = json.loads(body[body.index(b"{") : body.rindex(b"}") + 1])["environ"]
    fields = {key for key in environ if key.startswith("HTTP_")} - {"HTTP_X_REQUEST_ID", "HTTP_X_REQUEST_START"}
    return 200, {key: environ[key] for key in environ.keys() & COMPARED | fields}


def difference(ours: Outcome, theirs: Outcome) -> tuple[object, object]:
    """The entries of each outcome that the other does not have."""

    def own(one: Outcome, other: Outcome) -> object:
        return dict(sorted(one[1].items() - other[1].items())) if one[0] == other[0] else one[0]

    return own(ours, theirs), own(theirs, ours)


TRUSTING = {name for name, arguments in SETTINGS.items() if UNTRUSTED[1] not in arguments}
OUTSIDE = {
    "a path outside": (200, 500),
    "a path that only begins like it": ({"PATH_INFO": "/apple"}, {"PATH_INFO": "le"}),
}
DIFFERENT: list[tuple[set[str], Mapping[str, tuple[object, object]]]] = [
    # A version that is not spoken has a status of its own, and 1.2 and later are not spoken either.
    (
        SETTINGS.keys() - {"versions"},
        {f"HTTP/{version}": (505, 400) for version in ("0.9", "2.0", "3.7")}
        | {f"HTTP/{version}": (505, 200) for version in ("1.2", "1.9")},
    ),
    # A scheme is the same in any case (RFC 3986 section 3.1).
    (
        TRUSTING - {"own schemes", "no schemes"},
        {"PROTO": ({"wsgi.url_scheme": "https"}, {"wsgi.url_scheme": "http"})},
    ),
    # The app answers 404 for a path that it does not have.
    (TRUSTING - {"none"}, OUTSIDE),
    # A field that frames nothing here must not frame a message behind the app.
    (
        {"any", "dangerous", "dangerous, untrusted"},
        {
            "a coding with an underscore": ({}, {"HTTP_TRANSFER_ENCODING": "chunked"}),
            "a length with an underscore": ({}, {"HTTP_CONTENT_LENGTH": "5"}),
        },
    ),
    # Only a trusted proxy may say where the app is mounted.
    (
        {"dangerous, untrusted"},
        {
            "a mount point": ({"PATH_INFO": "/app/x", "SCRIPT_NAME": ""}, {"PATH_INFO": "/x", "SCRIPT_NAME": "/app"}),
            "a mount point in lower case": (
                {"PATH_INFO": "/app", "SCRIPT_NAME": ""},
                {"PATH_INFO": "", "SCRIPT_NAME": "/app"},
            ),
            "two mount points": (
                {"PATH_INFO": "/app/x", "SCRIPT_NAME": ""},
                {"PATH_INFO": "/x", "SCRIPT_NAME": "/app"},
            ),
            "a path outside": (200, 500),
            "a path that only begins like it": (
                {"PATH_INFO": "/apple", "SCRIPT_NAME": ""},
                {"PATH_INFO": "le", "SCRIPT_NAME": "/app"},
            ),
        },
    ),
    # A field that frames a message, names its host or says how the connection goes on must be in one line; and
    # whitespace around a value is no part of it (RFC 9110 section 5.5).
    (
        {"folding", "folding and spaces"},
        {
            "a folded coding": (400, 200),
            "a coding folded to another": (400, 200),
            "a folded host": (400, 200),
            "a space and no name": (400, 200),  # it goes on with the Connection before it
            "folded from the start": ({"HTTP_X_A": "a"}, {"HTTP_X_A": " a"}),
            "folded over an empty line": ({"HTTP_X_A": "a b"}, {"HTTP_X_A": "a  b"}),
            "folded, and the last is empty": ({"HTTP_X_A": "a"}, {"HTTP_X_A": "a "}),
        },
    ),
    ({"spaces", "folding and spaces"}, {"a length with a space": (400, 200), "a coding with a space": (400, 200)}),
]


@pytest.mark.own("this is the comparison with the peer")
@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_does_what_it_does_in_gunicorn_but_where_we_differ_on_purpose(
    serve: Serve, tmp_path: Path, name: str
) -> None:
    ours, theirs = (started(serve, tmp_path, name, kind) for kind in (STANCHION, GUNICORN))
    pairs = {case: (outcome(ours, data), outcome(theirs, data)) for case, data in CASES.items()}
    found = {case: difference(*pair) for case, pair in pairs.items() if pair[0] != pair[1]}
    expected = {case: pair for names, table in DIFFERENT if name in names for case, pair in table.items()}
    assert found == expected


def started(serve: Serve, tmp_path: Path, name: str, kind: Kind) -> Server:
    arguments = list(SETTINGS[name])
    if "-c" in arguments:
        place = arguments.index("-c") + 1
        file = tmp_path / f"{name}.py"
        file.write_text(arguments[place])
        arguments[place] = str(file)
    return serve("echo:raw", *arguments, kind=kind)


# ---- Settings of stanchion alone


@pytest.mark.own("gunicorn takes no notice of root_path for WSGI")
class TestRootPath:
    OPTIONS = ("--root-path", "/shop")

    @pytest.mark.parametrize(
        ("path", "sent", "expected"),
        [
            ("/shop/x", [], ("/shop", "/x")),
            ("/shop", [], ("/shop", "")),
            ("/x", [], ("/shop", "/x")),
            ("/shopping", [], ("/shop", "/shopping")),
            ("/app/x", ["SCRIPT_NAME: /app"], ("/app", "/x")),
        ],
    )
    def test_it_is_where_the_app_is_mounted(
        self, serve: Serve, path: str, sent: list[str], expected: tuple[str, str]
    ) -> None:
        server = serve("echo:raw", *self.OPTIONS, env={"SCRIPT_NAME": "/of-the-environment"})
        with server.connect() as wire:
            # This holds also where the worker makes the environ from that of a request before, for another path.
            mount, path_info = expected
            for below in ("", "/1", "/2"):
                environ = wire.get(path + below, *sent).json()["environ"]
                assert (environ["SCRIPT_NAME"], environ["PATH_INFO"]) == (mount, path_info + below)


@pytest.mark.own("gunicorn starts its workers anew")
def test_a_reload_changes_how_requests_are_read(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "c.py"
    file.write_text("")
    server = serve("echo:raw", "-c", str(file))
    odd = [CASES[name] for name in ("get", "HTTP/2.0", "folded", "a space", "underscores", "both")]

    def statuses() -> list[int]:
        return [outcome(server, data)[0] for data in odd]

    assert statuses() == [400, 505, 400, 400, 200, 200]
    permits = ["permit_unconventional_http_method", "permit_unconventional_http_version", "permit_obsolete_folding"]
    lines = [f"{name} = True" for name in [*permits, "strip_header_spaces"]]
    file.write_text("\n".join([*lines, "header_map = 'refuse'", OWN_SCHEMES]))
    mark = server.log.mark()
    server.signal(signal.SIGHUP)
    server.log.wait("reloaded: generation 2 serves", mark)
    assert [server.log.wait(f"setting `{name}` from config file", mark) for name in permits]
    assert statuses() == [200, 200, 200, 200, 400, 200]
    server.log.wait(r'400 GET / .*: a field with an underscore in its name: "X_A" \(header_map\)', mark)
    assert outcome(server, CASES["both"])[1]["wsgi.url_scheme"] == "https"


@pytest.mark.own("gunicorn takes them")
def test_no_setting_lets_in_what_frames_a_message_in_two_ways(serve: Serve) -> None:
    """A body that another server sees, and we do not, is a request of its own here: it would be answered second."""
    all_permits = [
        flag for name in ("methods in upper case", "versions", "folding and spaces", "any") for flag in SETTINGS[name]
    ]
    server = serve("echo:raw", *all_permits, "--header-map", "dangerous")
    hidden = request("GET", "/hidden", ["Connection: close"])
    length = f"{len(hidden)}"
    for lines in (
        [f"Content-Length : {length}"],
        ["Content-Length:", f" {length}"],
        ["Content-Length: 0", f" {length}"],
        ["Content-Length\t: 0", f"Content-Length: {length}"],
        ["Transfer-Encoding : chunked"],
        ["Transfer-Encoding:", " chunked"],
        ["Transfer-Encoding: identity,", "\tchunked"],
        ["X-A: a", f"Content-Length: {length}", f"Content-Length: {length}", " 0"],
    ):
        for method, version in (("POST", "1.1"), ("post", "1.0"), ("POST", "2.0")):
            sent = "\r\n".join([f"{method} / HTTP/{version}", "Host: test", "X-First: 1", *lines, "", ""]).encode()
            with server.connect() as wire:
                wire.send(sent + hidden)
                answered = wire.rest()
            assert answered.startswith(b"HTTP/1.1 400 "), (lines, answered)
            assert answered.count(b"HTTP/1.1 ") == 1, (lines, answered)
    # With an underscore it frames nothing: the next request follows, and the app sees no field of framing.
    for line in (f"Content_Length: {length}", "Transfer_Encoding: chunked"):
        with server.connect() as wire:
            wire.send(request("GET", "/", [line]) + hidden)
            first, second = wire.response().json()["environ"], wire.response().json()["environ"]
        assert second["PATH_INFO"] == "/hidden"
        assert not {"HTTP_CONTENT_LENGTH", "HTTP_TRANSFER_ENCODING", "CONTENT_LENGTH"} & first.keys()
