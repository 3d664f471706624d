"""An OpenTelemetry collector that a test plays: it takes OTLP over HTTP, or does not."""

import base64
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2

from support.patience import PATIENCE_S

SAMPLED, HAS_IS_REMOTE, IS_REMOTE = 0x1, 0x100, 0x200
"""Bits of a span's flags."""


IDS = "traceId", "spanId", "parentSpanId"


def parse(body: bytes) -> ExportTraceServiceRequest:
    """Protobuf's own parser reads OTLP's JSON. It refuses unknown keys and wrong types, but takes ids for base64: in
    OTLP they are hexadecimal (OTLP specification, "JSON Protobuf Encoding").
    """

    def with_base64(one: dict[str, Any]) -> dict[str, Any]:
        for key in one.keys() & IDS:
            assert one[key] == one[key].lower()
            one[key] = base64.b64encode(bytes.fromhex(one[key])).decode()
        return one

    message = json.loads(body, object_hook=with_base64)
    assert all(isinstance(span["kind"], int) for span in message["resourceSpans"][0]["scopeSpans"][0]["spans"])
    return json_format.ParseDict(message, ExportTraceServiceRequest())


def values(attributes: list[KeyValue]) -> dict[str, Any]:
    kinds = [(one.key, one.value, one.value.WhichOneof("value")) for one in attributes]
    assert len({key for key, _, _ in kinds}) == len(kinds), f"a key twice: {attributes}"
    return {key: getattr(value, kind) for key, value, kind in kinds}


@dataclass(frozen=True)
class Span:
    """A span as it was sent; ids are hexadecimal."""

    name: str
    kind: str
    trace_id: str
    id: str
    parent_id: str
    trace_state: str
    flags: int
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    failed: bool
    resource: dict[str, Any]

    @classmethod
    def all(cls, message: ExportTraceServiceRequest) -> "list[Span]":
        return [
            cls(
                span.name,
                trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
                span.trace_id.hex(),
                span.span_id.hex(),
                span.parent_span_id.hex(),
                span.trace_state,
                span.flags,
                span.start_time_unix_nano,
                span.end_time_unix_nano,
                values(span.attributes),
                span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
                values(resource.resource.attributes),
            )
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class Collector:
    """Listens on a free port of the loopback."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._may_answer = threading.Event()
        self._may_answer.set()
        self._status = 200
        self._rejects = 0
        self._asked: list[int] = []
        self._spans: list[Span] = []
        handler = type("Handler", (Handler,), {"collector": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def says(self, status: int, rejects: int = 0) -> None:
        """Answer from now on with this status, and that so many spans were rejected."""
        self._status, self._rejects = status, rejects

    def hold(self) -> None:
        """The collector answers no client until it goes on or is stopped."""
        self._may_answer.clear()

    def go_on(self) -> None:
        self._may_answer.set()

    def wait_asked(self, count: int) -> list[int]:
        """Wait until it has been sent that many messages; the statuses it answers with."""
        self._wait(lambda: len(self._asked) >= count)
        return list(self._asked)

    def spans(self, count: int) -> list[Span]:
        """The spans it has taken, once there are that many."""
        self._wait(lambda: len(self._spans) >= count)
        assert len(self._spans) == count, self._spans
        return list(self._spans)

    def _wait(self, told: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(told, PATIENCE_S), f"asked {self._asked}, took {self._spans}"

    def take(self, message: ExportTraceServiceRequest) -> tuple[int, bytes]:
        with self._changed:
            status, rejects = self._status, self._rejects
            self._asked.append(status)
            self._changed.notify_all()
        self._may_answer.wait()
        with self._changed:
            if status == 200:
                self._spans += Span.all(message)
            self._changed.notify_all()
        response = ExportTraceServiceResponse()
        if rejects:
            response.partial_success.rejected_spans = rejects
        return status, json_format.MessageToJson(response).encode()

    def stop(self) -> None:
        self._may_answer.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_S)


class Handler(BaseHTTPRequestHandler):
    collector: Collector

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        assert self.headers["Content-Type"] == "application/json"
        assert self.headers["Host"] == self.collector.endpoint.removeprefix("http://")
        message = parse(self.rfile.read(int(self.headers["Content-Length"])))
        status, body = self.collector.take(message)
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # It had enough.

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: pytest shows what went wrong."""
