"""Apps that tell what surrounds their process, or print and fork there."""

import ctypes
import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable
from wsgiref.types import StartResponse, WSGIEnvironment


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Tells what surrounds the process that answers: user, groups, variables; and leaves orphans when asked."""
    answer: object = ROUTES[environ["PATH_INFO"]](environ)
    body = json.dumps(answer).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]


def identity(_: WSGIEnvironment) -> object:
    return {"uids": os.getresuid(), "gids": os.getresgid(), "groups": os.getgroups()}


def variables(_: WSGIEnvironment) -> object:
    """The environment variables that a program of the app's sees."""
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


def attack(environ: WSGIEnvironment) -> object:
    """Attacks the process and the directory of the query, and answers with the error of each attempt, or nothing."""
    pid, _, directory = environ["QUERY_STRING"].partition("&")
    made = f"{directory}/mine"
    attempts: dict[str, Callable[[], object]] = {
        # 0 asks for the right alone (kill(2)).
        "kill": lambda: os.kill(int(pid), 0),
        "trace": lambda: trace(int(pid)),
        "memory": lambda: open(f"/proc/{pid}/mem", "rb").close(),
        "list": lambda: os.listdir(directory),
        "make": lambda: (open(made, "x").close(), os.remove(made)),
    }
    return {name: error_of(attempt) for name, attempt in attempts.items()}


def trace(pid: int) -> None:
    """PTRACE_SEIZE of ptrace(2), which does not stop the process."""
    if ctypes.CDLL(None, use_errno=True).ptrace(0x4206, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def error_of(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return ""


ROUTES = {
    "/identity": identity,
    "/variables": variables,
    "/body": body_length,
    "/orphan": orphan,
    "/open-files": open_files,
    "/attack": attack,
}


def printing(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Prints, and starts a program that does."""
    print("printed to stdout", environ["PATH_INFO"])
    print("printed to stderr", environ["PATH_INFO"], file=sys.stderr)
    subprocess.run(["echo", "by another program", environ["PATH_INFO"]], check=True)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]


def forking(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Forks: the child comes back as its parent does, or asks to exit. Answers name the process."""
    path = environ["PATH_INFO"]
    if path in ("/returns", "/exits"):
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        elif path == "/exits":
            sys.exit(3)
    start_response("200 OK", [])
    return [str(os.getpid()).encode()]
