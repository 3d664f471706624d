"""What gunicorn knows and stanchion does not: names to explain, so that nothing is dropped silently.

In a config file all of these are ignored, with one warning that names them. On the command line
a flag without effect on what clients see is ignored with a warning; any other is refused, with
the way to get the same here.
"""

from typing import NamedTuple


class Foreign(NamedTuple):
    """A setting of gunicorn that has no meaning here."""

    name: str
    flags: tuple[str, ...] = ()
    takes_value: bool = True
    refusal: str | None = None  # None: ignoring the flag is harmless
    harmless_values: tuple[str, ...] = ()  # with these it is ignored in spite of `refusal`


_TLS = "TLS is not served here: terminate it in a proxy such as nginx"
_LOGS = "logs go to --error-logfile and --access-logfile; collect them from there"
_HTTP2 = "only HTTP/1 is served here: put a proxy such as nginx in front for HTTP/2"
_PARSER = "requests are parsed strictly, without exceptions"
_CHECK = "run `stanchion check`"
_PROXY = "only HTTP is spoken here"
_DIRTY = "there are no dirty workers here"

FOREIGN = (
    Foreign(
        "worker_class",
        ("-k", "--worker-class"),
        refusal="workers run threads (--threads), no event loop",
        harmless_values=("sync", "gthread"),
    ),
    Foreign("worker_connections", ("--worker-connections",)),
    Foreign("worker_tmp_dir", ("--worker-tmp-dir",)),
    Foreign("reload_engine", ("--reload-engine",)),
    Foreign("http_parser", ("--http-parser",)),
    Foreign("proc_name", ("-n", "--name")),
    Foreign("default_proc_name"),
    Foreign("capture_output", ("--capture-output",), takes_value=False),
    Foreign("enable_stdio_inheritance", ("-R", "--enable-stdio-inheritance"), takes_value=False),
    Foreign("control_socket", ("--control-socket",)),
    Foreign("control_socket_mode", ("--control-socket-mode",)),
    Foreign("control_socket_disable", ("--no-control-socket",), takes_value=False),
    Foreign(
        "daemon",
        ("-D", "--daemon"),
        takes_value=False,
        refusal="run it under systemd or in a container, or as `stanchion serve ... &`",
    ),
    Foreign("spew", ("--spew",), takes_value=False, refusal="run the app under a debugger or `python -m trace`"),
    Foreign("check_config", ("--check-config",), takes_value=False, refusal=_CHECK),
    Foreign("print_config", ("--print-config",), takes_value=False, refusal=_CHECK),
    Foreign("paste", ("--paste", "--paster"), refusal="name a factory that loads it: MODULE:FACTORY()"),
    Foreign("raw_paste_global_conf", ("--paste-global",), refusal="name a factory that loads it: MODULE:FACTORY()"),
    Foreign("root_path", ("--root-path",), refusal="let the proxy strip the prefix"),
    Foreign("logger_class", ("--logger-class",), refusal=_LOGS),
    Foreign("logconfig", ("--log-config",), refusal=_LOGS),
    Foreign("logconfig_dict"),
    Foreign("logconfig_json", ("--log-config-json",), refusal=_LOGS),
    Foreign("secure_scheme_headers"),
    Foreign("forwarder_headers", ("--forwarder-headers",), refusal="the set of forwarding headers is fixed"),
    Foreign("header_map", ("--header-map",), refusal=_PARSER, harmless_values=("drop",)),
    Foreign("proxy_protocol", ("--proxy-protocol",), refusal=_PROXY, harmless_values=("off",)),
    Foreign("proxy_allow_ips", ("--proxy-allow-from",), refusal=_PROXY),
    Foreign("protocol", ("--protocol",), refusal=_PROXY, harmless_values=("http",)),
    Foreign("uwsgi_allow_ips", ("--uwsgi-allow-from",), refusal=_PROXY),
    Foreign("permit_obsolete_folding", ("--permit-obsolete-folding",), takes_value=False, refusal=_PARSER),
    Foreign("strip_header_spaces", ("--strip-header-spaces",), takes_value=False, refusal=_PARSER),
    Foreign(
        "permit_unconventional_http_method",
        ("--permit-unconventional-http-method",),
        takes_value=False,
        refusal=_PARSER,
    ),
    Foreign(
        "permit_unconventional_http_version",
        ("--permit-unconventional-http-version",),
        takes_value=False,
        refusal=_PARSER,
    ),
    Foreign("casefold_http_method", ("--casefold-http-method",), takes_value=False, refusal=_PARSER),
    Foreign("keyfile", ("--keyfile",), refusal=_TLS),
    Foreign("certfile", ("--certfile",), refusal=_TLS),
    Foreign("ca_certs", ("--ca-certs",), refusal=_TLS),
    Foreign("cert_reqs", ("--cert-reqs",), refusal=_TLS),
    Foreign("ciphers", ("--ciphers",), refusal=_TLS),
    Foreign("ssl_version", ("--ssl-version",), refusal=_TLS),
    Foreign("suppress_ragged_eofs", ("--suppress-ragged-eofs",), takes_value=False, refusal=_TLS),
    Foreign("do_handshake_on_connect", ("--do-handshake-on-connect",), takes_value=False, refusal=_TLS),
    Foreign("http_protocols", ("--http-protocols",), refusal=_HTTP2, harmless_values=("h1",)),
    Foreign("http2_cleartext", ("--http2-cleartext",), refusal=_HTTP2, harmless_values=("off",)),
    Foreign("http2_max_concurrent_streams", ("--http2-max-concurrent-streams",), refusal=_HTTP2),
    Foreign("http2_initial_window_size", ("--http2-initial-window-size",), refusal=_HTTP2),
    Foreign("http2_max_frame_size", ("--http2-max-frame-size",), refusal=_HTTP2),
    Foreign("http2_max_header_list_size", ("--http2-max-header-list-size",), refusal=_HTTP2),
    Foreign("asgi_loop", ("--asgi-loop",)),
    Foreign("asgi_lifespan", ("--asgi-lifespan",)),
    Foreign("asgi_disconnect_grace_period", ("--asgi-disconnect-grace-period",)),
    Foreign("websocket_max_message_size", ("--websocket-max-message-size",)),
    Foreign("dirty_apps", ("--dirty-app",), refusal=_DIRTY),
    Foreign("dirty_workers", ("--dirty-workers",), refusal=_DIRTY),
    Foreign("dirty_timeout", ("--dirty-timeout",), refusal=_DIRTY),
    Foreign("dirty_threads", ("--dirty-threads",), refusal=_DIRTY),
    Foreign("dirty_graceful_timeout", ("--dirty-graceful-timeout",), refusal=_DIRTY),
)

# Hooks without meaning here. Those that have one are in hooks.py.
HOOKS = frozenset({"ssl_context", "on_dirty_starting", "dirty_post_fork", "dirty_worker_init", "dirty_worker_exit"})

# Names in a config file that deserve a word when they are ignored.
NAMES = HOOKS | {foreign.name for foreign in FOREIGN}
