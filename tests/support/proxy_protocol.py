"""PROXY headers (proxy-protocol.txt of HAProxy), as a proxy would write them."""

import ipaddress
import struct

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
LOCAL, PROXY = 0x20, 0x21
SSL = 0x20


def v1(source: str, destination: str, source_port: int = 4097, port: int = 443) -> bytes:
    family = "TCP6" if ":" in source else "TCP4"
    return f"PROXY {family} {source} {destination} {source_port} {port}\r\n".encode()


def v2(
    source: str | None = None,
    destination: str | None = None,
    source_port: int = 4097,
    port: int = 443,
    tlvs: bytes = b"",
    command: int = PROXY,
) -> bytes:
    """A header of PROXY protocol version 2; with `source` None it names no address."""
    family, block = 0, b""
    if source is not None:
        family, entry = (0x21, "2001:db8::2") if ":" in source else (0x11, "198.51.100.2")
        places = [ipaddress.ip_address(address).packed for address in (source, destination or entry)]
        block = b"".join(places) + struct.pack(">HH", source_port, port)
    block += tlvs
    return SIGNATURE + struct.pack(">BBH", command, family, len(block)) + block


def tlv(kind: int, value: bytes) -> bytes:
    return struct.pack(">BH", kind, len(value)) + value


CAME_BY_TLS = tlv(SSL, bytes([1, 0, 0, 0, 0]))
