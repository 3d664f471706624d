"""Runs an app on a server that is a library and has no command.

`python -m bench.embed SERVER MODULE:APP ADDRESS [WORKERS]`. Where a library can share a socket between processes,
they are forked when the app is loaded.
"""

import importlib
import os
import sys
from wsgiref.simple_server import WSGIRequestHandler, make_server
from wsgiref.types import WSGIApplication


class QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """No access log: no other server here writes one."""


def main(server: str, spec: str, address: str, workers: str = "1") -> None:
    module, _, name = spec.partition(":")
    app: WSGIApplication = getattr(importlib.import_module(module), name)
    host, _, port = address.rpartition(":")
    match server:
        case "bjoern":
            bjoern = importlib.import_module("bjoern")
            bjoern.listen(app, *([address] if address.startswith("unix:") else [host, int(port)]))
            fork(int(workers))
            bjoern.run()
        case "fastpysgi" if workers == "1":
            importlib.import_module("fastpysgi").run(app, host, int(port))
        case "wsgiref":
            make_server(host, int(port), app, handler_class=QuietHandler).serve_forever()
        case _:
            sys.exit(f"no such server, or not with {workers} workers: {server}")


def fork(workers: int) -> None:
    """Workers that know nothing of each other. The program that ends this process ends its children, too."""
    for _ in range(workers - 1):
        if os.fork() == 0:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
