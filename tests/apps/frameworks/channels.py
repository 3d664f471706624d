"""An app of Django with channels, in one file: rooms of WebSockets, to which views speak too."""

import json
from typing import Any
from urllib.parse import parse_qs

import django
from asgiref.sync import async_to_sync
from channels.generic.websocket import AsyncWebsocketConsumer
from channels.layers import get_channel_layer
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path
from rendezvous import announce

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    CHANNEL_LAYERS={"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}},
    INSTALLED_APPS=["channels"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="tests",
)
django.setup()


class Room(AsyncWebsocketConsumer):
    async def connect(self) -> None:
        self.room = self.scope["url_route"]["kwargs"]["room"]
        if self.room == "closed":
            await self.close()
            return
        await self.channel_layer.group_add(self.room, self.channel_name)
        await self.accept("chat" if "chat" in self.scope["subprotocols"] else None)
        name = parse_qs(self.scope["query_string"].decode())["name"][0]
        await self.send(json.dumps({"room": self.room, "name": name}))

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if text_data == "close":
            await self.close(4001, "as asked")
        elif text_data == "count":
            for number in range(100):
                await self.send(str(number))
            await self.close()
        elif text_data and text_data.startswith("to all: "):
            await self.channel_layer.group_send(self.room, {"type": "said", "text": text_data})
        else:
            await self.send(text_data=text_data, bytes_data=bytes_data)

    async def said(self, event: dict[str, Any]) -> None:
        await self.send(event["text"])

    async def disconnect(self, code: int) -> None:
        await self.channel_layer.group_discard(self.room, self.channel_name)
        announce("left")


def say(request: HttpRequest, room: str) -> HttpResponse:
    """Not asynchronous: Django runs it in a thread, and what it sends goes through the loop."""
    async_to_sync(get_channel_layer().group_send)(room, {"type": "said", "text": request.GET["text"]})
    return HttpResponse("said")


urlpatterns = [path("say/<room>", say)]

application = ProtocolTypeRouter(
    {
        "http": get_asgi_application(),
        "websocket": AllowedHostsOriginValidator(URLRouter([path("ws/<room>", Room.as_asgi())])),
    }
)
