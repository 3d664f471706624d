"""From `module:attr` to a callable, and from each way to fail to a line that helps."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from stanchion import config, loader, reload
from stanchion.config import Layer
from stanchion.configuration import Configuration, working_directory
from stanchion.interfaces import interfaces_of
from stanchion.loader import AppHost, AppLoadError, describe_failure, load_app

APP = """\
import functools
import inspect

def application(environ, start_response):
    start_response("200 OK", [])
    return [b"application"]

class Object:
    def __call__(self, environ, start_response):
        return [b"object"]

class Namespace:
    app = Object()

def create_app(name="default", *, debug=False):
    def app(environ, start_response):
        return [f"{name} {debug}".encode()]
    return app

def create_with(name):
    return application

def broken_factory():
    return {}["key"]

def empty_factory():
    pass

def exit_factory():
    raise SystemExit(3)

async def asgi(scope, receive, send):
    pass

async def async_factory():
    pass

class AsgiObject:
    async def __call__(self, scope, receive, send):
        pass

    async def handle(self, scope, receive, send):
        pass

class Derived(AsgiObject):
    pass

class OldAsgi:
    def __init__(self, scope):
        pass

    async def __call__(self, receive, send):
        pass

def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)
    return wrapper

def either(*arguments):
    return [b"either"]

class AnyObject:
    async def __call__(self, *arguments):
        pass

any_part = functools.partial(AnyObject())

def with_default(environ, start_response, more=None):
    return []

def middleware(scope, receive, send):
    return asgi(scope, receive, send)

async def with_more(more, scope, receive, send):
    pass

async def with_any(*arguments):
    pass

def returns_awaitable(*arguments):
    return asgi(*arguments)

class Marked:
    def __init__(self, mark):
        mark(self)

    def __call__(self, *arguments):
        return asgi(*arguments)

def mark_by_asgiref(app):
    import asgiref.sync
    asgiref.sync.markcoroutinefunction(app)

marked_instance = Marked(mark_by_asgiref)
part_of_marked = functools.partial(marked_instance)
misnamed = Marked(lambda app: setattr(app, "_is_coroutine_or_not", True))

def old_function(scope):
    return asgi

class OldRouter:
    def __call__(self, scope):
        return asgi

old_router = OldRouter()

marked = getattr(inspect, "markcoroutinefunction", lambda function: asgi)(returns_awaitable)
instance, derived, wrapped, method = AsgiObject(), Derived(), decorated(asgi), AsgiObject().handle
part = functools.partial(with_more, 1)
parts = functools.partial(functools.partial(AsgiObject()))

number = 5
"""


@pytest.fixture(autouse=True)
def site(home: Path) -> Path:
    (home / "site_app.py").write_text(APP)
    return home


def body(spec: str) -> bytes:
    return b"".join(load_app(spec)({}, lambda status, headers: None))


def failure(spec: str) -> AppLoadError:
    with pytest.raises(AppLoadError) as caught:
        load_app(spec)
    return caught.value


@pytest.mark.parametrize(
    ("spec", "answer"),
    [
        ("site_app", b"application"),
        ("site_app:application", b"application"),
        ("site_app:Namespace.app", b"object"),
        ("site_app:Object()", b"object"),
        ("site_app:create_app()", b"default False"),
        ("site_app:create_app('a', debug=True)", b"a True"),
        ("site_app:create_with(name=('a', 1))", b"application"),
    ],
)
def test_specs(spec, answer):
    assert body(spec) == answer


ASYNCHRONOUS = ["asgi", "instance", "derived", "wrapped", "method", "part", "parts", "middleware", "with_any", "marked"]
ASYNCHRONOUS += ["marked_instance", "part_of_marked"]


@pytest.mark.parametrize(
    ("name", "interfaces"),
    [
        *((name, ["asgi"]) for name in ASYNCHRONOUS),
        *((name, ["wsgi"]) for name in ("application", "Object()", "create_app()")),
        ("any_part", ["asgi"]),
        *((name, ["wsgi", "asgi"]) for name in ("either", "with_default", "misnamed")),
    ],
)
def test_by_what_an_app_is_called(name, interfaces):
    assert interfaces_of(load_app(f"site_app:{name}")) == interfaces


def host_of(app: str, **values: object) -> AppHost:
    chosen = Layer("command line", {"wsgi_app": f"site_app:{app}", **values})
    return AppHost(Configuration(lambda: config.resolve([chosen])))


@pytest.mark.parametrize("app", ["application", "asgi", "either"])
def test_an_app_is_loaded_that_is_called_as_the_setting_says_or_as_is_expected(app):
    for interface in interfaces_of(load_app(f"site_app:{app}")):
        for expected in (None, "wsgi", "asgi"):  # The setting counts, if it says anything.
            assert callable(host_of(app, interface=interface).load(expected))
    assert callable(host_of(app).load())


@pytest.mark.parametrize(("app", "is_called"), [("application", "wsgi"), ("asgi", "asgi"), ("either", "wsgi")])
def test_an_app_that_is_to_say_by_what_it_is_called_says_so(app, is_called):
    for expected in ("wsgi", "asgi"):
        if expected == is_called:
            assert callable(host_of(app).load(expected))
        else:
            with pytest.raises(loader.OtherInterfaceError):
                host_of(app).load(expected)


@pytest.mark.parametrize(
    ("app", "interface", "words"),
    [
        ("asgi", "wsgi", "the app is asynchronous (ASGI), and the setting `interface` from command line says wsgi"),
        ("application", "asgi", "the app is a WSGI app, and the setting `interface` from command line says asgi"),
    ],
)
def test_an_app_that_is_not_what_the_setting_says_is_refused(app, interface, words):
    other = {"wsgi": "asgi", "asgi": "wsgi"}[interface]
    with pytest.raises(AppLoadError) as caught:
        host_of(app, interface=interface).load(interface)
    assert describe_failure(caught.value) == f"cannot load the app: {words}; leave that out, or say {other}"


@pytest.mark.parametrize("interface", ["auto", "wsgi"])
def test_under_gevent_an_app_must_be_a_wsgi_app(interface, monkeypatch):
    monkeypatch.setattr("stanchion.greenlets.patch", lambda origin: None)
    for app in ("application", "either"):
        assert callable(host_of(app, interface=interface, loop="gevent").load("wsgi"))
    with pytest.raises(AppLoadError) as caught:
        host_of("asgi", interface=interface, loop="gevent").load("wsgi")
    assert describe_failure(caught.value) == (
        "cannot load the app: the app is asynchronous (ASGI), and the setting `loop` from command line says gevent, "
        "which runs WSGI apps; leave that out"
    )


def test_an_asynchronous_app_is_not_warmed_up_in_the_template():
    for app in ("application", "either"):
        assert callable(host_of(app, warm_up="/").load("wsgi"))
    with pytest.raises(AppLoadError) as caught:
        host_of("asgi", warm_up="/").load("wsgi")
    assert describe_failure(caught.value) == (
        "cannot load the app: the app is asynchronous (ASGI), and the setting `warm_up` from command line has the "
        "template answer requests, where no event loop runs; leave that out, and warm the app up at lifespan.startup"
    )
    assert callable(host_of("asgi").load())


def test_to_look_at_an_app_that_is_a_function_takes_no_inspect(site):
    script = "import sys; from stanchion.loader import load_app; load_app('small'); print('inspect' in sys.modules)"
    for head in ("def app(environ, start_response)", "async def app(scope, receive, send)"):
        (site / "small.py").write_text(f"{head}: pass\n")
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=site)
        assert done.stdout == "False\n"


def test_a_module_alone_means_application_then_app(site):
    (site / "only_app.py").write_text("def app(environ, start_response): return [b'app']\n")
    assert body("only_app") == b"app"
    (site / "neither.py").write_text("")
    error = failure("neither")
    assert error.message == "'neither' has neither 'application' nor 'app'"
    assert error.advice == "name the app's object: neither:NAME"


def test_a_package_with_a_module(site):
    (site / "project").mkdir()
    (site / "project" / "__init__.py").write_text("")
    (site / "project" / "wsgi.py").write_text("from site_app import application\n")
    assert body("project.wsgi") == b"application"


@pytest.mark.parametrize(
    ("spec", "message", "advice"),
    [
        ("nowhere:app", "there is no module 'nowhere' in ", "check the spelling"),
        ("site_app.deeper:app", "there is no module 'site_app.deeper'", "check the spelling"),
        ("site_app.py:app", "'site_app.py' is a file", "write site_app:app"),
        ("./site_app.py", "'./site_app.py' is a file", "write site_app:app"),
        ("src/site_app", "'src/site_app' is a file", "write src.site_app:app"),
        ("", "'' is not the name of a module", "write MODULE:NAME"),
        ("site_app:", "'' names neither", "write MODULE:NAME"),
        ("site_app:a b", "'a b' names neither", "write MODULE:NAME"),
        ("site_app:apps[0]", "'apps[0]' names neither", "write MODULE:NAME"),
        ("site_app:create_app(number)", "'create_app(number)' names neither", "write MODULE:NAME"),
        ("site_app:create_app(**{'name': 'a'})", "names neither", "write MODULE:NAME"),
        ("site_app:aplication", "'site_app' has no 'aplication'", "did you mean application?"),
        ("site_app:Namespace.ap", "'site_app.Namespace' has no 'ap'", "did you mean app?"),
        ("site_app:xyzzy", "'site_app' has no 'xyzzy'", "are there and callable: name site_app:application"),
        ("site_app:Namespace.xyzzy", "'site_app.Namespace' has no 'xyzzy'", "name the app's object: site_app:NAME"),
        ("site_app:number", "'site_app:number' is an object of type int, which cannot be called", "name the app"),
        ("site_app:number()", "'number' is not a function but an object of type int", "without parentheses"),
        ("site_app:create_with()", "missing a required argument: 'name'", "give the arguments"),
        ("site_app:create_app(1, 2)", "too many positional arguments", "give the arguments"),
        ("site_app:broken_factory()", "'broken_factory' raised KeyError: 'key'", "site_app.py:"),
        ("site_app:exit_factory()", "'exit_factory' raised SystemExit: 3", "site_app.py:"),
        ("site_app:empty_factory()", "the factory returned None, which cannot be called", "return the app"),
        (
            "site_app:empty_factory",
            "takes neither (environ, start_response) nor ",
            "call it: 'site_app:empty_factory()'",
        ),
        (
            "site_app:async_factory",
            "takes neither (environ, start_response) nor ",
            "call it: 'site_app:async_factory()'",
        ),
        ("site_app:OldAsgi", "is called twice for each request, as ASGI 2 apps are", "guarantee_single_callable"),
        ("site_app:old_function", "is called twice for each request, as ASGI 2 apps are", "guarantee_single_callable"),
        ("site_app:old_router", "is called twice for each request, as ASGI 2 apps are", "guarantee_single_callable"),
        ("site_app:AsgiObject", "takes neither (environ, start_response) nor ", "call it: 'site_app:AsgiObject()'"),
    ],
)
def test_each_failure_and_its_advice(spec, message, advice):
    error = failure(spec)
    assert message in error.message
    assert advice in error.advice
    assert "\n" not in describe_failure(error).splitlines()[-1]


def test_a_missing_dependency_is_not_a_missing_app(site):
    (site / "needy.py").write_text("import no_such_dependency\n")
    error = failure("needy:app")
    assert error.message == "it imports 'no_such_dependency', which this Python does not have"
    assert sys.executable in error.advice


@pytest.mark.parametrize(
    ("source", "message", "line"),
    [
        ("\n1 / 0\n", "importing 'bad' raised ZeroDivisionError: division by zero", 2),
        ("def f(:\n", "importing 'bad' raised SyntaxError: invalid syntax", 1),
        ("import sys\nsys.exit('no\\nway')\n", "importing 'bad' raised SystemExit: no", 2),
        ("from os import no_such_name\n", "importing 'bad' raised ImportError: cannot import name", 1),
    ],
)
def test_an_error_while_importing(source, message, line, site):
    (site / "bad.py").write_text(source)
    error = failure("bad:app")
    assert error.message.startswith(message)
    assert error.advice == f"correct the app at {site / 'bad.py'}:{line}"


def test_a_failure_is_described_by_the_users_frames_and_one_line(site):
    (site / "bad.py").write_text("def f():\n    raise RuntimeError('boom')\n\nf()\n")
    lines = describe_failure(failure("bad:app")).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{site / "bad.py"}", line 4, in <module>'
    assert lines[-2] == "RuntimeError: boom"
    assert lines[-1].startswith("cannot load the app: importing 'bad' raised RuntimeError: boom; correct the app at ")
    assert not any("importlib" in line or "loader.py" in line for line in lines)


def test_advice_names_the_last_line_of_the_app_and_not_of_the_library(site):
    packages = site / "site-packages"
    packages.mkdir()
    (packages / "library.py").write_text("def ask(function):\n    return function()\n")
    (site / "bad.py").write_text(
        f"import os, sys\nsys.path.append({str(packages)!r})\nimport library\n\nlibrary.ask(lambda: os.environ['NO'])\n"
    )
    with pytest.raises(AppLoadError) as raised:
        load_app("bad")
    sys.path.remove(str(packages))
    assert raised.value.advice == f"correct the app at {site / 'bad.py'}:5"


def test_a_failure_without_the_users_code_is_one_line():
    assert describe_failure(failure("nowhere:app")).count("\n") == 0


def test_any_other_error_is_described_too():
    assert describe_failure(KeyError("x")).splitlines()[-1] == "cannot load the app: KeyError: 'x'"


def test_a_callable_that_hides_its_signature_is_taken_at_its_word(site):
    (site / "hidden.py").write_text("app = dict.fromkeys\nany_args = lambda *args: [b'']\n")
    assert callable(load_app("hidden:any_args"))


def test_the_app_does_not_see_what_is_for_the_master_alone(monkeypatch):
    for name in ("STANCHION_HANDOVER", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"):
        monkeypatch.setenv(name, "1")
    chosen = Layer("here", {"wsgi_app": "site_app"})
    AppHost(Configuration(lambda: config.resolve([chosen]))).load()
    assert [name for name in os.environ if name.startswith(("STANCHION_HANDOVER", "LISTEN_"))] == []


def test_the_host_loads_and_watches(site):
    (site / "templates").mkdir()
    page = site / "templates" / "page.html"
    page.write_text("")
    chosen = Layer("here", {"wsgi_app": "site_app", "reload_extra_files": ["templates/*.html", "later.ini"]})
    host = AppHost(Configuration(lambda: config.resolve([chosen])))
    assert b"".join(host.load()({}, lambda status, headers: None)) == b"application"
    watched = host.watched_files()
    assert {str(page), str(site / "later.ini"), str(site / "site_app.py"), os.path.abspath(reload.__file__)} <= {
        *watched
    }
    assert watched == sorted(watched)


def test_what_is_not_watched(site):
    for directory in (".hidden", "node_modules", "env/lib", "lib/site-packages", "src"):
        (site / directory).mkdir(parents=True)
        (site / directory / "module.py").write_text("")
    (site / "env" / "pyvenv.cfg").write_text("")
    below = [os.path.relpath(path, site) for path in reload.watched_files() if path.startswith(f"{site}{os.sep}")]
    assert below == ["site_app.py", "src/module.py"]


def test_a_huge_directory_is_watched_in_part(site, monkeypatch):
    for number in range(10):
        (site / f"m{number}.py").write_text("")
    monkeypatch.setattr(reload, "FILES_MAX", 4)
    assert len([path for path in reload.watched_files() if path.startswith(f"{site}{os.sep}")]) == 4


def test_a_lazy_module_is_not_woken(monkeypatch):
    class Lazy(ModuleType):
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(f"asked for {name}")

    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    reload.watched_files()


def test_what_only_says_that_it_is_a_module_is_not_watched(monkeypatch):
    """`_cffi_backend.Lib` does so, of which the package cryptography has one."""

    class Lib:
        __slots__ = ()
        __class__ = property(lambda self: ModuleType)

    assert isinstance(Lib(), ModuleType)
    monkeypatch.setitem(sys.modules, "lib", Lib())
    reload.watched_files()


def test_the_working_directory_is_known_by_the_name_of_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, current = tmp_path / "release", tmp_path / "current"
    release.mkdir()
    current.symlink_to(release)
    monkeypatch.chdir(current)
    for named, expected in [
        (str(current), str(current)),
        (str(tmp_path), str(release)),
        ("current", str(release)),
        (f"{tmp_path}/nothing", str(release)),
        ("", str(release)),
    ]:
        monkeypatch.setenv("PWD", named)
        assert working_directory() == expected


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (
            "import flask\nfrom flask import Flask, redirect, request\nshop = Flask('shop')",
            "shop is there and callable: name one_app:shop",
        ),
        (
            "async def asgi(scope, receive, send): ...\ndef wsgi(environ, start): ...\ndef _hidden(one, two): ...",
            "asgi, wsgi are there and callable: name one_app:asgi",
        ),
        ("number = 5", "name the app's object: one_app:NAME"),
    ],
)
def test_a_name_that_is_not_there_is_answered_with_the_apps_that_are(home, code, advice):
    (home / "one_app.py").write_text(code)
    assert advice in failure("one_app:xyzzy").advice
