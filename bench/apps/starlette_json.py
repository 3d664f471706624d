"""The answer of the Flask view, from Starlette."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


async def view(request: Request) -> JSONResponse:
    return JSONResponse({"message": "Hello, World!", "numbers": list(range(10))})


app = Starlette(routes=[Route("/", view)])
