"""A GraphQL schema of Strawberry: a query, and subscriptions that end or go on until no client listens."""

import asyncio
from collections.abc import AsyncIterator

import strawberry
from rendezvous import announce
from strawberry.asgi import GraphQL


@strawberry.type
class Query:
    @strawberry.field
    async def hello(self, name: str) -> str:
        return f"hello {name}"


@strawberry.type
class Subscription:
    @strawberry.subscription
    async def count(self, to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number
            await asyncio.sleep(0)

    @strawberry.subscription
    async def endless(self) -> AsyncIterator[int]:
        try:
            for number in range(1_000_000):
                yield number
                await asyncio.sleep(0.01)
        finally:
            announce("nobody listens")

    @strawberry.subscription
    async def fails(self) -> AsyncIterator[int]:
        yield 0
        raise ValueError("it fails")


app = GraphQL[None, None](strawberry.Schema(Query, subscription=Subscription))
