"""Methods that an operator's logger class calls of its base class: ours beside gunicorn's own."""

import logging
from datetime import timedelta
from types import ModuleType, SimpleNamespace

import gunicorn.glogging
import pytest

import stanchion.glogging

ENVIRON = {
    "REMOTE_ADDR": "10.0.0.1",
    "REQUEST_METHOD": "GET",
    "RAW_URI": "/a?b=c",
    "PATH_INFO": "/a",
    "QUERY_STRING": "b=c",
    "SERVER_PROTOCOL": "HTTP/1.1",
    "HTTP_USER_AGENT": 'a "quoted" one',
    "HTTP_AUTHORIZATION": "Basic bWU6YWJj",
    "wsgi.multithread": False,
}
FORMAT = '%(h)s %(u)s "%(r)s" %(m)s %(U)s %(q)s %(H)s %(s)s %(b)s %(B)s "%(f)s" "%(a)s" %(T)s %(D)s %(M)s %(L)s '
FORMAT += "%(p)s %({X-Kind}i)s %({content-length}o)s %({wsgi.multithread}e)s %({nothing}i)s %(nothing)s"


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def written(module: ModuleType, environ: dict[str, object], sent: int) -> str:
    """One access line, by a logger that nothing was set up for."""
    handler = _Lines()
    logger = module.Logger.__new__(module.Logger)
    logger.access_log = logging.Logger("access")
    logger.access_log.addHandler(handler)
    logger.error_log = logging.Logger("error", "CRITICAL")
    logger.cfg = SimpleNamespace(accesslog="-", access_log_format=FORMAT, syslog=False)
    logger.cfg.logconfig = logger.cfg.logconfig_dict = logger.cfg.logconfig_json = None
    request = SimpleNamespace(headers=[("X-KIND", "shoes")])
    answer = SimpleNamespace(status="200 OK", sent=sent, headers=[("Content-Length", "5")])
    logger.access(answer, request, environ, timedelta(seconds=2, microseconds=34_567))
    (line,) = handler.lines
    return line


@pytest.mark.parametrize("authorization", ["Basic bWU6YWJj", "Basic ?", "Bearer abc", None])
@pytest.mark.parametrize("sent", [0, 5])
def test_an_access_line_is_gunicorns(authorization: str | None, sent: int) -> None:
    environ = {name: value for name, value in ENVIRON.items() if name != "HTTP_AUTHORIZATION"}
    if authorization is not None:
        environ["HTTP_AUTHORIZATION"] = authorization
    ours, theirs = (written(module, environ, sent) for module in (stanchion.glogging, gunicorn.glogging))
    assert ours == theirs
    assert "2034567 2034 2.034567" in ours and " shoes 5 False - -" in ours
