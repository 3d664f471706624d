"""An app of Django, in one file: asynchronous views, those that run in threads, streams, uploads."""

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path
from rendezvous import announce

settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="tests", MIDDLEWARE=[
    "django.middleware.common.CommonMiddleware",
    f"{__name__}.old_middleware",
])  # fmt: skip
django.setup()


def old_middleware(get_response: Any) -> Any:
    """Not asynchronous: Django puts it into a thread, with all that is behind it."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response: HttpResponse = get_response(request)
        response["X-Old"] = "1"
        return response

    return middleware


async def hello(request: HttpRequest) -> JsonResponse:
    await asyncio.sleep(0)
    return JsonResponse({"hello": request.GET["name"], "client": request.META.get("REMOTE_ADDR")})


def in_a_thread(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"loop": threading.current_thread() is threading.main_thread()})


async def echo(request: HttpRequest) -> HttpResponse:
    return HttpResponse(hashlib.sha256(request.body).hexdigest())


async def stream(request: HttpRequest) -> StreamingHttpResponse:
    async def lines() -> AsyncIterator[bytes]:
        for number in range(3):
            yield b"%d\n" % number
            await asyncio.sleep(0.01)

    return StreamingHttpResponse(lines(), content_type="text/plain")


async def waits(request: HttpRequest) -> HttpResponse:
    """Django cancels it when the client leaves."""
    announce("waits")
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        announce("cancelled")
        raise
    return HttpResponse()


urlpatterns = [
    path("", hello),
    path("thread", in_a_thread),
    path("echo", echo),
    path("stream", stream),
    path("waits", waits),
]

application = get_asgi_application()
