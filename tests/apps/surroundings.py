"""Tells what surrounds the process that answers: user, groups, variables; and leaves orphans when asked."""

import json
import os
import resource
import subprocess
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    answer: object = ROUTES[environ["PATH_INFO"]](environ)
    body = json.dumps(answer).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


def identity(_: WSGIEnvironment) -> object:
    return {"uids": os.getresuid(), "gids": os.getresgid(), "groups": os.getgroups()}


def variables(_: WSGIEnvironment) -> object:
    """Those that a program sees which the app starts."""
    shown = subprocess.run(["env"], capture_output=True, text=True, check=True)
    return shown.stdout.splitlines()


def body_length(environ: WSGIEnvironment) -> object:
    return len(environ["wsgi.input"].read())


def open_files(_: WSGIEnvironment) -> object:
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def orphan(_: WSGIEnvironment) -> object:
    """A process whose parent leaves at once; the seconds it sleeps are its name."""
    seconds = str(10_000 + os.getpid())
    subprocess.run(["sh", "-c", f"sleep {seconds} > /dev/null 2>&1 &"], check=True)
    return seconds


ROUTES = {
    "/identity": identity,
    "/variables": variables,
    "/body": body_length,
    "/orphan": orphan,
    "/open-files": open_files,
}
