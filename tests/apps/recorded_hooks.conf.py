"""Records each hook: the process that it runs in, and its arguments, as far as two servers can agree on them."""

import json
import os
from typing import Any

from rendezvous import announce

OF_SERVER = ("X-REQUEST-ID", "X-REQUEST-START")
"""Fields that gunicorn does not add."""

MASTER = os.getpid()


def is_of_tuples(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, tuple) and len(one) == 2 for one in value)


def of_server(server: Any) -> dict[str, Any]:
    server.log.debug("unseen")
    return {
        # Not known to gunicorn's own until it has started.
        "pid": getattr(server, "pid", MASTER) == MASTER,
        "workers": server.cfg.workers,
        "address": [type(one).__name__ for one in server.address],
    }


def of_worker(worker: Any) -> dict[str, Any]:
    worker.log.debug("unseen")
    return {
        "pid": worker.pid if isinstance(worker.pid, str) else worker.pid == os.getpid() or "of another",
        "ppid": worker.ppid == MASTER,
        "age": type(worker.age).__name__,
        "nr": type(worker.nr).__name__,
        # gunicorn's master never learns that of a worker.
        "alive": worker.alive if worker.pid == os.getpid() else None,
        "threads": worker.cfg.threads,
        "timeout": worker.cfg.timeout > 0,
    }


def of_req(req: Any) -> dict[str, Any]:
    return {
        "line": [req.method, req.uri, req.path, req.query, list(req.version), req.scheme],
        "remote_addr": [type(one).__name__ for one in req.remote_addr],
        # Here also the request's id.
        "headers": is_of_tuples(req.headers) and [pair for pair in req.headers if pair[0] not in OF_SERVER],
    }


def of_resp(resp: Any) -> dict[str, Any]:
    return {
        # gunicorn calls the hook also without an answer.
        "status": [resp.status, getattr(resp, "status_code", None)],
        # Here also the length, where the app has left it to the server.
        "headers": is_of_tuples(resp.headers)
        and [value for name, value in resp.headers if name.lower() == "content-type"],
        "sent": type(resp.sent).__name__,
    }


def of_environ(environ: Any) -> dict[str, Any]:
    return {name: environ[name] for name in ("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING", "HTTP_HOST")}


DESCRIBE = {"server": of_server, "worker": of_worker, "req": of_req, "resp": of_resp, "environ": of_environ}


def record(hook: str, **given: Any) -> None:
    told = {name: DESCRIBE[name](one) if name in DESCRIBE else one for name, one in given.items()}
    announce(json.dumps({"hook": hook, "pid": os.getpid(), "given": told}))


def on_starting(server: Any) -> None:
    record("on_starting", server=server)


def on_reload(server: Any) -> None:
    record("on_reload", server=server)


def when_ready(server: Any) -> None:
    record("when_ready", server=server)


def pre_fork(server: Any, worker: Any) -> None:
    record("pre_fork", server=server, worker=worker)


def post_fork(server: Any, worker: Any) -> None:
    record("post_fork", server=server, worker=worker)


def post_worker_init(worker: Any) -> None:
    record("post_worker_init", worker=worker, has_app=callable(worker.wsgi))


def worker_int(worker: Any) -> None:
    record("worker_int", worker=worker)


def worker_abort(worker: Any) -> None:
    record("worker_abort", worker=worker)


def worker_exit(server: Any, worker: Any) -> None:
    record("worker_exit", server=server, worker=worker)


def child_exit(server: Any, worker: Any) -> None:
    record("child_exit", server=server, worker=worker)


def nworkers_changed(server: Any, new_value: int, old_value: int | None) -> None:
    record("nworkers_changed", new_value=new_value, old_value=old_value)


def pre_exec(server: Any) -> None:
    record("pre_exec", server=server)


def on_exit(server: Any) -> None:
    record("on_exit", server=server)


def pre_request(worker: Any, req: Any) -> None:
    record("pre_request", worker=worker, req=req)


def post_request(worker: Any, req: Any, environ: Any, resp: Any) -> None:
    record("post_request", worker=worker, req=req, environ=environ, resp=resp)
