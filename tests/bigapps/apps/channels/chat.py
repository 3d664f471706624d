"""Rooms in which each message goes to all, by a channel layer."""

import django

django.setup()

from channels.generic.websocket import AsyncWebsocketConsumer
from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

PAGE = """<!doctype html><title>chat</title><link rel=icon href="data:,"><pre id=said></pre><script>
const room = new WebSocket(`ws://${location.host}/rooms/page`);
room.onopen = () => room.send('hello from the page');
room.onmessage = message => { document.getElementById('said').textContent += message.data + ' '; };
</script>"""


def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse(PAGE)


class Room(AsyncWebsocketConsumer):
    async def connect(self) -> None:
        self.room = self.scope["url_route"]["kwargs"]["room"]
        if self.room == "closed":
            await self.close()
            return
        await self.channel_layer.group_add(self.room, self.channel_name)
        await self.accept()
        await self.send(text_data=f"welcome to {self.room}")

    async def disconnect(self, code: int) -> None:
        await self.channel_layer.group_discard(self.room, self.channel_name)

    async def receive(self, text_data: str) -> None:
        if text_data == "leave":
            await self.close(code=4000)
            return
        await self.channel_layer.group_send(self.room, {"type": "said", "text": text_data})

    async def said(self, event: dict[str, str]) -> None:
        await self.send(text_data=f"said: {event['text']}")


urlpatterns = [path("", page)]
application = ProtocolTypeRouter(
    {
        "http": get_asgi_application(),
        "websocket": URLRouter([path("rooms/<str:room>", Room.as_asgi())]),
    }
)
