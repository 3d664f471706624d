"""What gunicorn knows and stanchion does not: names to explain, so that nothing is dropped silently.

Each has one rule, wherever it comes from, a config file or a command line. A value that asks for
what happens here anyway is accepted without a word. Any other of a setting without effect on what
clients see is ignored with a warning, and so is one that gunicorn, too, makes use of only together
with another that stops the start: `ciphers` without `certfile` changes nothing there either. Of all
others it stops the start, with the way to get the same here.
"""

import reprlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Foreign(NamedTuple):
    """A setting of gunicorn that has no meaning here."""

    name: str
    flags: tuple[str, ...] = ()
    takes_value: bool = True
    refusal: str | None = None  # None: ignoring it is harmless, unless another that it belongs to is refused
    same: tuple[object, ...] = ()  # values that ask for what happens here anyway; None always does

    def is_honoured(self, value: object) -> bool:
        """Whether the value asks for what happens here anyway."""
        return value is None or any(_is_same(value, one) for one in self.same)


def _is_same(value: object, wanted: object) -> bool:
    """Whether gunicorn would read them alike: a list is also written as a text, and so are numbers."""
    if isinstance(wanted, Mapping):
        return isinstance(value, Mapping) and {str(name).upper(): one for name, one in value.items()} == wanted
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    if not isinstance(value, str | int | float):
        return False
    return value == wanted or str(value).replace(" ", "").lower() == str(wanted).lower()


_TLS = "TLS is not served here: terminate it in a proxy such as nginx"
_HTTP2 = "only HTTP/1 is served here: put a proxy such as nginx in front for HTTP/2"
_PROXY = "only HTTP is spoken here"
_DIRTY = "there are no dirty workers here"

_LOOPBACK = "127.0.0.1,::1"

FOREIGN = (
    Foreign(
        "worker_class",
        ("-k", "--worker-class"),
        refusal="workers run threads (--threads), no event loop",
        same=("sync", "gthread", "gunicorn.workers.sync.SyncWorker", "gunicorn.workers.gthread.ThreadWorker"),
    ),
    Foreign("worker_connections", ("--worker-connections",), same=(1000,)),
    Foreign("worker_tmp_dir", ("--worker-tmp-dir",)),
    Foreign("http_parser", ("--http-parser",), same=("auto",)),
    Foreign("default_proc_name", same=("gunicorn",)),
    Foreign("control_socket", ("--control-socket",)),
    Foreign("control_socket_mode", ("--control-socket-mode",), same=(0o600,)),
    Foreign("control_socket_disable", ("--no-control-socket",), takes_value=False, same=(False, True)),
    Foreign("proxy_protocol", ("--proxy-protocol",), refusal=_PROXY, same=("off", False)),
    Foreign("proxy_allow_ips", ("--proxy-allow-from",), same=(_LOOPBACK,)),
    Foreign("protocol", ("--protocol",), refusal=_PROXY, same=("http",)),
    Foreign("uwsgi_allow_ips", ("--uwsgi-allow-from",), same=(_LOOPBACK,)),
    Foreign("keyfile", ("--keyfile",), refusal=_TLS, same=("",)),
    Foreign("certfile", ("--certfile",), refusal=_TLS, same=("",)),
    Foreign("ca_certs", ("--ca-certs",), same=("",)),
    Foreign("cert_reqs", ("--cert-reqs",), same=(0,)),
    Foreign("ciphers", ("--ciphers",), same=("",)),
    Foreign("ssl_version", ("--ssl-version",), same=(2,)),
    Foreign("ssl_context", refusal=_TLS),
    Foreign("suppress_ragged_eofs", ("--suppress-ragged-eofs",), takes_value=False, same=(True,)),
    Foreign(
        "do_handshake_on_connect",
        ("--do-handshake-on-connect",),
        takes_value=False,
        same=(False,),
    ),
    Foreign("http_protocols", ("--http-protocols",), refusal=_HTTP2, same=("h1",)),
    Foreign("http2_cleartext", ("--http2-cleartext",), refusal=_HTTP2, same=("off", False)),
    Foreign("http2_max_concurrent_streams", ("--http2-max-concurrent-streams",), same=(100,)),
    Foreign("http2_initial_window_size", ("--http2-initial-window-size",), same=(65535,)),
    Foreign("http2_max_frame_size", ("--http2-max-frame-size",), same=(16384,)),
    Foreign("http2_max_header_list_size", ("--http2-max-header-list-size",), same=(65536,)),
    Foreign("asgi_loop", ("--asgi-loop",), same=("auto",)),
    Foreign("asgi_lifespan", ("--asgi-lifespan",), same=("auto",)),
    Foreign("asgi_disconnect_grace_period", ("--asgi-disconnect-grace-period",), same=(3,)),
    Foreign("websocket_max_message_size", ("--websocket-max-message-size",), same=(16 << 20,)),
    Foreign("dirty_apps", ("--dirty-app",), refusal=_DIRTY, same=("",)),
    Foreign("dirty_workers", ("--dirty-workers",), same=(0,)),
    Foreign("dirty_timeout", ("--dirty-timeout",), same=(300,)),
    Foreign("dirty_threads", ("--dirty-threads",), same=(1,)),
    Foreign("dirty_graceful_timeout", ("--dirty-graceful-timeout",), same=(30,)),
    Foreign("on_dirty_starting"),
    Foreign("dirty_post_fork"),
    Foreign("dirty_worker_init"),
    Foreign("dirty_worker_exit"),
)

BY_NAME: Mapping[str, Foreign] = MappingProxyType({foreign.name: foreign for foreign in FOREIGN})


def refused(given: str, foreign: Foreign) -> str:
    """The words for what is given and cannot be honoured."""
    return f"{given} is gunicorn's and not supported: {foreign.refusal}"


def sort_out(held: Mapping[str, object]) -> tuple[list[str], list[str]]:
    """Of the variables of a config file: why it must not be used, and the names that are ignored."""
    asked = [(BY_NAME[name], value) for name, value in held.items() if name in BY_NAME]
    unmet = [(foreign, value) for foreign, value in asked if not foreign.is_honoured(value)]
    refusals = [refused(_written(one.name, value), one) for one, value in unmet if one.refusal is not None]
    return refusals, [foreign.name for foreign, _ in unmet if foreign.refusal is None]


def _written(name: str, value: object) -> str:
    """As it stands in the file, if it is short enough to be recognised."""
    is_plain = isinstance(value, str | int | float | list | tuple | dict)
    return f"{name} = {reprlib.repr(value)}" if is_plain else name
