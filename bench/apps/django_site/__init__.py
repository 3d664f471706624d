"""A Django site as sites are: admin, sessions, and a page of rows from a database.

`/` is that page, `/admin/login/` a form of the admin. /hold answers the number of its process a little later, and
/collect after a garbage collection too, as in heavy.py.
"""

import gc
import os
import time
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application

from bench.apps.asgi import Message, Receive, Send, answer

# Long enough that requests sent together reach different workers.
HOLD_S = 0.02

os.environ["DJANGO_SETTINGS_MODULE"] = "bench.apps.django_site.settings"
site = get_wsgi_application()
asynchronous_site = get_asgi_application()


def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    if not holds(environ["PATH_INFO"]):
        return site(environ, start_response)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"%d\n" % os.getpid()]


async def asynchronous_app(scope: Message, receive: Receive, send: Send) -> None:
    if scope["type"] == "http" and holds(scope["path"]):
        await answer(send, os.getpid())
    else:
        await asynchronous_site(scope, receive, send)


def holds(page: str) -> bool:
    """Whether it is one of the pages that take their worker for a while."""
    if page == "/collect":
        gc.collect()
    elif page != "/hold":
        return False
    time.sleep(HOLD_S)
    return True
