"""HTTP/2 with asynchronous apps: uploads that stream, clients that leave, early hints, and WebSockets (RFC 8441)."""

import hashlib
import json

import pytest
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Event, Ping, Pong, TextMessage

from support.gate import Gate
from support.http2 import Talk
from support.server import UNHURRIED, Serve, Server

pytestmark = pytest.mark.own("only peers that it trusts may speak HTTP/2 without TLS with gunicorn")

HTTP2 = ("--http-protocols", "h2,h1", "--http2-cleartext", "prior-knowledge", "--interface", "asgi")


@pytest.fixture
def uploading(serve: Serve, gate: Gate) -> Server:
    return serve("uploading:app", *HTTP2, *UNHURRIED, env=gate.environment)


@pytest.mark.parametrize("tells", [True, False])
def test_an_upload_of_any_size_goes_through(uploading: Server, tells: bool) -> None:
    body = bytes(range(256)) * 40_000
    with Talk(uploading.address) as talk:
        answer = talk.post("/digest", body, *([("content-length", str(len(body)))] if tells else []))
    told = json.loads(answer.body)
    assert told["sha256"] == hashlib.sha256(body).hexdigest()
    assert told["pieces"] > 1


def test_what_the_app_does_not_receive_stays_with_the_client(uploading: Server, gate: Gate) -> None:
    with Talk(uploading.address) as talk:
        number = talk.begin("/late", method="POST", ends=False)
        body = bytes(100_000)
        # A request joins the line with so much.
        talk.say(number, body, ends=False)
        assert gate.announcement() == "runs"
        while talk.frames.local_flow_control_window(number) > 0:
            room = talk.frames.local_flow_control_window(number)
            talk.frames.send_data(number, bytes(min(room, 16_384)))
            body += bytes(min(room, 16_384))
            talk.flush()
            assert len(body) < 1_000_000, "the app receives nothing, and the client may go on"
            # All frames that the server has to send by now come before the answer to this.
            talk.ping()
        assert talk.get("/called").status == 200
        gate.open()
        talk.say(number, b"end")
        answer = json.loads(talk.answer(number).body)
        assert answer["sha256"] == hashlib.sha256(body + b"end").hexdigest()


def test_uploads_that_are_held_hold_up_no_others(uploading: Server, gate: Gate) -> None:
    with Talk(uploading.address) as talk:
        held = [talk.begin("/late", method="POST", ends=False) for _ in range(5)]
        for number in held:
            # Send until the app does not receive, and the server does not read any more.
            while room := talk.frames.local_flow_control_window(number):
                talk.say(number, bytes(room), ends=False)
                talk.ping()
        gate.announcements(len(held))
        body = bytes(200_000)
        answer = talk.post("/digest", body)
        assert json.loads(answer.body)["sha256"] == hashlib.sha256(body).hexdigest()
        gate.open()
        for number in held:
            talk.say(number, b"")
            assert talk.answer(number).status == 200


def test_an_answer_comes_while_the_body_does(uploading: Server) -> None:
    with Talk(uploading.address) as talk:
        number = talk.begin("/echo", method="POST", ends=False)
        answer = talk.answers[number]
        for count in range(1, 5):
            talk.say(number, b"x" * 70_000, ends=False)
            talk.until(lambda count=count: len(answer.body) == 70_000 * count)
        talk.say(number, b"", ends=True)
        assert len(talk.answer(number).body) == 280_000


def test_an_app_is_told_of_a_stream_that_is_reset(uploading: Server, gate: Gate) -> None:
    with Talk(uploading.address) as talk:
        number = talk.begin("/gone", method="POST", ends=False)
        talk.say(number, b"some", ends=False)
        assert gate.announcement() == "begun"
        talk.reset(number)
        assert gate.announcement() == "told, and sends in vain"
        assert talk.get("/called").status == 200


def test_an_app_that_fails_late_breaks_its_stream_off(uploading: Server, gate: Gate) -> None:
    with Talk(uploading.address) as talk:
        number = talk.begin("/raises")
        talk.until(lambda: talk.answers[number].body == b"begun")
        gate.open()
        assert talk.answer(number).reset == 2


def test_early_hints_go_ahead_of_the_answer(serve: Serve, gate: Gate) -> None:
    server = serve("fields:hints", "--early-hints", *HTTP2[:4], env=gate.environment)
    with Talk(server.address) as talk:
        number = talk.begin("/step/2")
        answer = talk.answers[number]
        for place in range(2):
            assert gate.announcement() == "hinted"
            talk.until(lambda place=place: len(answer.interim) > place)
            assert answer.interim[place] == (103, [("link", f"</{place}.css>")])
            gate.let_pass(1)
        assert talk.answer(number).status == 200


class Session:
    """A WebSocket on a stream."""

    def __init__(self, talk: Talk, path: str) -> None:
        self.talk = talk
        talk.until(lambda: talk.frames.remote_settings.enable_connect_protocol == 1)
        fields = [(":protocol", "websocket"), ("sec-websocket-version", "13")]
        self.number = talk.begin(path, *fields, method="CONNECT", ends=False)
        self.answer = talk.answers[self.number]
        talk.until(lambda: self.answer.status != 0)
        self._frames = Connection(ConnectionType.CLIENT)
        self._read = 0

    def say(self, event: Event) -> None:
        self.talk.say(self.number, self._frames.send(event), ends=False)

    def hear(self) -> Event:
        """The next that is no part of another."""
        while True:
            for event in self._frames.events():
                return event
            self.talk.until(lambda: len(self.answer.body) > self._read)
            self._frames.receive_data(self.answer.body[self._read :])
            self._read = len(self.answer.body)


@pytest.fixture
def sockets(serve: Serve, gate: Gate) -> Server:
    return serve("sockets:app", *HTTP2, env=gate.environment)


def test_a_websocket_is_a_stream_beside_others(sockets: Server) -> None:
    with Talk(sockets.address) as talk:
        first, second = Session(talk, "/echo"), Session(talk, "/echo")
        assert (first.answer.status, first.answer.header("x-app")) == (200, "sockets")
        names = {name for name, _ in first.answer.fields}
        assert not names & {"sec-websocket-accept", "upgrade", "connection"}
        for session, text in ((first, "one"), (second, "two")):
            session.say(TextMessage(data=text))
        assert [session.hear().data for session in (second, first)] == ["two", "one"]
        first.say(Ping(b"there?"))
        assert first.hear() == Pong(b"there?")
        first.say(TextMessage(data="x" * 300_000))
        heard = ""
        while len(heard) < 300_000:
            heard += first.hear().data
        first.say(CloseConnection(code=1000))
        assert first.hear() == CloseConnection(code=1000, reason="")
        assert talk.answer(first.number).is_over
        seen = json.loads(talk.get("/seen").body)["seen"]
        assert seen[0][:2] == ["websocket.connect", "ws"]
        second.say(TextMessage(data="still here"))
        assert second.hear().data == "still here"


def test_one_that_the_app_refuses_has_its_answer(sockets: Server) -> None:
    with Talk(sockets.address) as talk:
        assert Session(talk, "/deny").answer.status == 403
        teapot = Session(talk, "/teapot")
        assert (talk.answer(teapot.number).status, teapot.answer.body) == (418, b"short and stout")


def test_without_websockets_no_client_is_offered_any(serve: Serve) -> None:
    server = serve("hello:app", *HTTP2[:4])
    with Talk(server.address) as talk:
        assert talk.get("/").status == 200
        assert talk.frames.remote_settings.enable_connect_protocol == 0
