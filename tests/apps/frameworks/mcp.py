"""A server of the Model Context Protocol, over streamable HTTP: tools, of which one reports its progress."""

import os

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from rendezvous import announce

server = MCPServer("tests")


@server.tool()
def add(first: int, second: int) -> int:
    return first + second


@server.tool()
async def count(to: int, context: Context) -> str:
    for number in range(to):
        await context.report_progress(number, to, f"number {number}")
    return "counted"


@server.tool()
def process() -> int:
    return os.getpid()


@server.tool()
def last_word() -> str:
    announce("called")
    return "done"


app = server.streamable_http_app(
    stateless_http="STATELESS" in os.environ,
    transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
)
