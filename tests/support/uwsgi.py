"""Requests of the uwsgi protocol, byte for byte."""

from collections.abc import Iterable


def packet(variables: Iterable[tuple[str, str]], body: bytes = b"") -> bytes:
    texts = [text.encode("latin-1") for pair in variables for text in pair]
    block = b"".join(len(text).to_bytes(2, "little") + text for text in texts)
    return b"\0" + len(block).to_bytes(2, "little") + b"\0" + block + body


def request(method: str = "GET", path: str = "/", body: bytes = b"", **more: str) -> bytes:
    """A packet as nginx sends it with Debian's uwsgi_params."""
    variables = {
        "QUERY_STRING": "",
        "REQUEST_METHOD": method,
        "CONTENT_TYPE": "",
        "CONTENT_LENGTH": str(len(body)) if body else "",
        "REQUEST_URI": path,
        "PATH_INFO": path,
        "DOCUMENT_ROOT": "/usr/share/nginx/html",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REQUEST_SCHEME": "http",
        "REMOTE_ADDR": "192.0.2.1",
        "REMOTE_PORT": "4097",
        "SERVER_PORT": "80",
        "SERVER_NAME": "shop.example",
        "HTTP_HOST": "shop.example",
        **more,
    }
    return packet(variables.items(), body)
