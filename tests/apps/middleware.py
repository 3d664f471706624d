"""Files of Starlette, behind the middleware that the environment names."""

import os
from typing import Any

from brotli_asgi import BrotliMiddleware
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles


class Stamp(BaseHTTPMiddleware):
    async def dispatch(self, request: Request, call_next: Any) -> Any:
        response = await call_next(request)
        response.headers["X-Stamp"] = "1"
        return response


MIDDLEWARE: dict[str, list[Middleware]] = {
    "none": [],
    "base": [Middleware(Stamp)],
    "gzip": [Middleware(GZipMiddleware)],
    "brotli": [Middleware(BrotliMiddleware)],
}


async def file(request: Request) -> FileResponse:
    return FileResponse(os.path.join(os.environ["FILES"], "page.txt"))


app = Starlette(
    routes=[Route("/file", file), Mount("/static", StaticFiles(directory=os.environ["FILES"]))],
    middleware=MIDDLEWARE[os.environ["MIDDLEWARE"]],
)
