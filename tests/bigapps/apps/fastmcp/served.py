from fastmcp import Context, FastMCP
from starlette.requests import Request
from starlette.responses import PlainTextResponse

server = FastMCP("test")


@server.tool
async def count(to: int, context: Context) -> int:
    for number in range(to):
        await context.report_progress(number, to)
    return to


@server.resource("text://long")
def long() -> str:
    return "x" * 200_000


@server.custom_route("/health", methods=["GET"])
async def health(request: Request) -> PlainTextResponse:
    return PlainTextResponse("well")


app = server.http_app()
