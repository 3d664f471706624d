"""Flags of uvicorn, hypercorn and granian, and what to use here in their place.

Each flag of each server is either in SAME, if there is one of this name and meaning, or in ANSWERS, with what to do in
its place. gunicorn's flags are accepted, and stand in gunicorn.py. Only a command line that is refused reads this.
"""

from collections.abc import Mapping
from types import MappingProxyType

_WITH_THE_SAME_MEANING = {
    "uvicorn": """
        --reload --workers --loop --ws-max-size --ws-ping-interval --ws-ping-timeout --ws-per-message-deflate --lifespan
        --interface --log-config --log-level --forwarded-allow-ips --root-path --backlog --ssl-version
        --version --help
    """,
    "hypercorn": """
        --access-logfile --access-logformat --backlog -b --bind --ca-certs --certfile --cert-reqs --ciphers -c --config
        -D --daemon --error-logfile --log-file --graceful-timeout --max-requests --max-requests-jitter -g --group
        -k --worker-class --keep-alive --keyfile --log-config --log-level -p --pid --reload --root-path --statsd-host
        --statsd-prefix -m --umask -u --user -w --workers -h --help
    """,
    "granian": """
        --interface --workers --loop --backlog --http2-max-concurrent-streams --http2-max-frame-size --log-level
        --log-config --reload --version --help
    """,
}

SAME: Mapping[str, frozenset[str]] = MappingProxyType(
    {server: frozenset(flags.split()) for server, flags in _WITH_THE_SAME_MEANING.items()}
)
"""By server. Values may differ: there is no `--loop trio`, no `--interface rsgi`, a config file is in Python, and of
`--ssl-version` it is said that --tls-min-version takes its place, as it is of gunicorn's.
"""

_BIND = "use --bind HOST:PORT"
_UNIX = "use --bind unix:PATH"
_FACTORY = 'name the app as "MODULE:FACTORY()"'
_VARIABLES = "use --env NAME=VALUE, or EnvironmentFile= of systemd"
_ALWAYS = "leave it out: it is always so"
_NOTHING = "leave it out: there is nothing to set"
_OWN_FIELD = "there is none here: the app may set the field itself"
_HEAD_SIZES = "use --limit-request-line SIZE and --limit-request-field-size SIZE"
_WEBSOCKETS = "leave it out: WebSockets are always served"
_ACCESS_LOG = "use --access-logfile -"
_NO_ACCESS_LOG = "leave it out: there is none without --access-logfile"
_NO_KEY_PASSWORD = "there is none here: keep the key in a file without one, which only root may read"
_CLIENT_CERTIFICATES = "use --cert-reqs 2"
_WATCHED = "use --reload-extra-file PATTERN; Python files are watched anyway"
_WATCHED_ONLY = "there is none here: only Python files and those of --reload-extra-file are watched"
_ONE_ACCEPTOR = "leave it out: one acceptor process does all input and output"
_WINDOWS = "leave it out: see --http2-initial-window-size SIZE"
_HTTP2_PINGS = "leave it out: --keep-alive and --write-timeout close what is idle or takes nothing"
_METRICS = "use --admin HOST:PORT, which has /metrics"
_STATIC = "use --static PATH=DIR"
_AFTER_FAILED_RELOAD = "leave it out: after a reload that failed the old code goes on"

_UVICORN = {
    "--host": _BIND,
    "--port": _BIND,
    "--uds": _UNIX,
    "--fd": "use --bind fd://N",
    "--app-dir": "use --chdir DIR, or --pythonpath DIRS",
    "--factory": _FACTORY,
    "--env-file": _VARIABLES,
    "--limit-concurrency": "use --worker-concurrency N for what runs, and --max-waiting N for what waits",
    "--limit-max-requests": "use --max-requests N",
    "--limit-max-requests-jitter": "use --max-requests-jitter N",
    "--timeout-keep-alive": "use --keep-alive SECONDS",
    "--timeout-graceful-shutdown": "use --graceful-timeout SECONDS",
    "--timeout-worker-healthcheck": "leave it out: a stuck worker is replaced after --timeout SECONDS",
    "--http": "leave it out: HTTP is read in Rust",
    "--http2": "use --http-protocols h2,h1",
    "--h11-max-incomplete-event-size": _HEAD_SIZES,
    "--proxy-headers": "leave it out: --forwarded-allow-ips LIST says whose count",
    "--no-proxy-headers": 'use --forwarded-allow-ips "", which believes no proxy',
    "--server-header": _ALWAYS,
    "--no-server-header": _OWN_FIELD,
    "--date-header": _ALWAYS,
    "--no-date-header": _OWN_FIELD,
    "--header": "there is none here: let the app or the proxy set it",
    "--reset-contextvars": _ALWAYS,
    "--ws": _WEBSOCKETS,
    "--ws-max-queue": "use --max-ws-memory SIZE: what waits is bounded in bytes",
    "--access-log": _ACCESS_LOG,
    "--no-access-log": _NO_ACCESS_LOG,
    "--use-colors": "there is none here",
    "--no-use-colors": "leave it out: there are none",
    "--ssl-certfile": "use --certfile FILE",
    "--ssl-keyfile": "use --keyfile FILE",
    "--ssl-keyfile-password": _NO_KEY_PASSWORD,
    "--ssl-cert-reqs": "use --cert-reqs N",
    "--ssl-ca-certs": "use --ca-certs FILE",
    "--ssl-ciphers": "use --ciphers NAMES",
    "--reload-dir": _WATCHED,
    "--reload-include": _WATCHED,
    "--reload-exclude": _WATCHED_ONLY,
    "--reload-delay": _NOTHING,
}

_HYPERCORN = {
    "--access-log": "use --access-logfile FILE",
    "--error-log": "use --error-logfile FILE",
    "--debug": "use --log-level debug",
    "--insecure-bind": "use --bind 'HOST:PORT?tls=false'",
    "--quic-bind": "there is none here: let a proxy speak HTTP/3",
    "--server-name": "there is none here: let the proxy or the app refuse other hosts",
    "--read-timeout": "use --header-timeout SECONDS and --body-timeout SECONDS",
    "--keyfile-password": _NO_KEY_PASSWORD,
    "--verify-mode": _CLIENT_CERTIFICATES,
    "--websocket-ping-interval": "use --ws-ping-interval SECONDS",
}

_GRANIAN = {
    "--host": _BIND,
    "--port": _BIND,
    "--uds": _UNIX,
    "--uds-permissions": "use --bind 'unix:PATH?mode=0o660'",
    "--working-dir": "use --chdir DIR",
    "--factory": _FACTORY,
    "--no-factory": "leave it out: only an app named as MODULE:FACTORY() is called",
    "--env-files": _VARIABLES,
    "--url-path-prefix": "use --root-path PATH",
    "--process-name": "use --name NAME",
    "--pid-file": "use --pid FILE",
    "--backpressure": "use --worker-concurrency N, or --threads N for a WSGI app",
    "--blocking-threads": "use --threads N",
    "--blocking-threads-idle-timeout": "leave it out: a worker keeps its threads",
    "--runtime-threads": _ONE_ACCEPTOR,
    "--runtime-blocking-threads": _ONE_ACCEPTOR,
    "--runtime-mode": _ONE_ACCEPTOR,
    "--task-impl": _NOTHING,
    "--workers-lifetime": "use --max-lifetime SECONDS",
    "--workers-max-rss": "use --max-memory SIZE, such as 300M",
    "--rss-sample-interval": "leave it out: the master compares with --max-memory each second",
    "--rss-samples": "leave it out: one look above --max-memory is enough",
    "--workers-kill-timeout": "use --graceful-timeout SECONDS",
    "--respawn-failed-workers": _ALWAYS,
    "--no-respawn-failed-workers": "there is none here: a worker that dies is always replaced",
    "--respawn-interval": "leave it out: a worker is replaced at once, and after each failure later",
    "--http": "use --http-protocols h1, or h2,h1",
    "--http1-buffer-size": _HEAD_SIZES,
    "--http1-header-read-timeout": "use --header-timeout SECONDS (not milliseconds)",
    "--http1-keep-alive": "leave it out: see --keep-alive SECONDS",
    "--no-http1-keep-alive": "use --keep-alive 0",
    "--http1-pipeline-flush": _NOTHING,
    "--no-http1-pipeline-flush": _NOTHING,
    "--http2-adaptive-window": _WINDOWS,
    "--no-http2-adaptive-window": _WINDOWS,
    "--http2-initial-connection-window-size": _WINDOWS,
    "--http2-initial-stream-window-size": "use --http2-initial-window-size SIZE",
    "--http2-keep-alive-interval": _HTTP2_PINGS,
    "--http2-keep-alive-timeout": _HTTP2_PINGS,
    "--http2-max-headers-size": "use --http2-max-header-list-size SIZE",
    "--http2-max-send-buffer-size": "use --response-buffer SIZE",
    "--ws": _WEBSOCKETS,
    "--no-ws": "there is none here: an app that accepts no WebSocket has none",
    "--log": _ALWAYS,
    "--no-log": "use --log-level critical",
    "--access-log": _ACCESS_LOG,
    "--no-access-log": _NO_ACCESS_LOG,
    "--access-log-fmt": "use --access-logformat FORMAT",
    "--metrics": _METRICS,
    "--metrics-address": _METRICS,
    "--metrics-port": _METRICS,
    "--no-metrics": "leave it out: there are none without --admin",
    "--metrics-scrape-interval": "leave it out: metrics are of the moment in which they are asked for",
    "--ssl-certificate": "use --certfile FILE",
    "--ssl-keyfile": "use --keyfile FILE",
    "--ssl-keyfile-password": _NO_KEY_PASSWORD,
    "--ssl-protocol-min": "use --tls-min-version VERSION",
    "--ssl-ca": "use --ca-certs FILE",
    "--ssl-crl": "there is none here: give certificates of clients a short life",
    "--ssl-client-verify": _CLIENT_CERTIFICATES,
    "--no-ssl-client-verify": "use --cert-reqs 0",
    "--static-path-route": _STATIC,
    "--static-path-mount": _STATIC,
    "--static-path-dir-to-file": "there is none here: a directory has no page",
    "--static-path-expires": "use --static-max-age SECONDS",
    "--no-reload": "leave it out: it is off without --reload",
    "--reload-paths": _WATCHED,
    "--reload-ignore-dirs": _WATCHED_ONLY,
    "--reload-ignore-patterns": _WATCHED_ONLY,
    "--reload-ignore-paths": _WATCHED_ONLY,
    "--reload-tick": _NOTHING,
    "--reload-ignore-worker-failure": _AFTER_FAILED_RELOAD,
    "--no-reload-ignore-worker-failure": _AFTER_FAILED_RELOAD,
}

ANSWERS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"uvicorn": _UVICORN, "hypercorn": _HYPERCORN, "granian": _GRANIAN}
)
"""By server and flag, what to do here."""


def answer(flag: str) -> str | None:
    """The servers that have this flag, and what to do in its place; None if none of them has it."""
    servers_of: dict[str, list[str]] = {}
    for server, answers in ANSWERS.items():
        if flag in answers:
            servers_of.setdefault(answers[flag], []).append(f"{server}'s")
    told = [f"{' and '.join(servers)}: {words}" for words, servers in servers_of.items()]
    return f"{flag} is {'; '.join(told)}" if told else None
