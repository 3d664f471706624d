"""Contents of a request's head, and how the server takes or refuses them."""

import pytest

from support.server import Serve, Server
from support.wire import request

TINY_FIELDS = 12_000
BODY_BYTES = 114_000


@pytest.fixture(scope="module")
def echo(shared_serve: Serve) -> Server:
    return shared_serve("echo:app")


@pytest.mark.own("gunicorn takes any Host")
@pytest.mark.parametrize("host", ["a b", "a/b", "user@a", "a b/@c", "a:b:c", "a?b"])
def test_a_host_field_that_is_no_host_is_refused_with_400(echo: Server, host: str) -> None:
    with echo.connect() as wire:
        wire.send(request("GET", "/", host=host))
        assert wire.response().status == 400
        assert wire.closed()


@pytest.mark.parametrize("host", ["a", "a:80", "127.0.0.1:8000", "[::1]:8000", "xn--4ca.example", ""])
def test_a_host_field_that_is_one_is_served(echo: Server, host: str) -> None:
    with echo.connect() as wire:
        wire.send(request("GET", "/", host=host))
        response = wire.response()
        assert response.status == 200
        assert response.json()["environ"]["HTTP_HOST"] == host


@pytest.mark.own("gunicorn takes the field's")
def test_the_host_of_a_whole_uri_counts_and_not_the_fields(echo: Server) -> None:
    """RFC 9112 section 3.2.2."""
    with echo.connect() as wire:
        wire.send(request("GET", "http://real:81/path?q", host="fake"))
        environ = wire.response().json()["environ"]
    assert (environ["HTTP_HOST"], environ["PATH_INFO"], environ["QUERY_STRING"]) == ("real:81", "/path", "q")


@pytest.mark.own("gunicorn hands it to the app")
def test_connect_is_not_implemented(echo: Server) -> None:
    with echo.connect() as wire:
        wire.send(request("CONNECT", "a:80", host="a:80"))
        assert wire.response("GET").status == 501
        assert wire.closed()


@pytest.mark.own("gunicorn writes them as they are")
@pytest.mark.parametrize("fields", [[], ["Expect: nothing known"]], ids=["by the app", "by the server"])
def test_control_characters_of_a_target_reach_no_terminal_through_the_error_log(
    serve: Serve, fields: list[str]
) -> None:
    """U+009B begins an escape sequence as ESC [ does; in UTF-8 it is allowed in a target."""
    server = serve("answers:app")
    target = "/raises?\u009b2J\u00e9".encode().decode("latin-1")
    with server.connect() as wire:
        wire.send(request("GET", target, fields))
        assert wire.response().status in (417, 500)
    server.log.wait(r"/raises\?\\xc2\\x9b2J\\xc3\\xa9")
    assert "\u009b" not in server.log.text()


@pytest.mark.own("gunicorn refuses a path outside of SCRIPT_NAME")
@pytest.mark.parametrize(
    ("path", "path_info"),
    [("/app", ""), ("/app/", "/"), ("/app/page", "/page"), ("/application", "/application"), ("/other", "/other")],
)
def test_a_mount_point_ends_where_a_path_segment_ends(mounted: Server, path: str, path_info: str) -> None:
    with mounted.connect() as wire:
        environ = wire.get(path).json()["environ"]
    assert (environ["SCRIPT_NAME"], environ["PATH_INFO"]) == ("/app", path_info)


@pytest.fixture(scope="module")
def mounted(shared_serve: Serve) -> Server:
    return shared_serve("echo:raw", env={"SCRIPT_NAME": "/app"})


@pytest.mark.own("gunicorn has no slots")
def test_a_head_of_very_many_tiny_fields_is_refused_with_431_and_the_server_goes_on(serve: Serve) -> None:
    """They fit into a head's limit, but with what is kept of each, and a body, not into a slot."""
    server = serve("hello:app", "--limit-request-fields", "32000")
    for _ in range(5):
        with server.connect() as wire:
            wire.send(request("POST", "/", ["a:"] * TINY_FIELDS, b"x" * BODY_BYTES))
            assert wire.response().status == 431
            assert wire.closed()
    with server.connect() as wire:
        assert wire.get("/").status == 200
    assert not server.log.matches(r"\[ERROR\]"), "it is the client's fault"
