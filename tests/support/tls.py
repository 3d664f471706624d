"""Certificates made for a test, by openssl(1), and clients of Python's ssl module that take nothing for granted."""

import socket
import ssl
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from support.address import Address
from support.patience import PATIENCE_S
from support.wire import Wire

NAME = "shop.test"
"""The server's name in most tests."""
REGISTER = """\
[ca]
default_ca = authority
[authority]
database = {home}/index.txt
new_certs_dir = {home}
certificate = {own.certfile}
private_key = {own.keyfile}
default_md = sha256
unique_subject = no
rand_serial = yes
policy = any
[any]
countryName = optional
organizationName = optional
commonName = supplied
"""
"""The configuration of openssl-ca(1), which issues certificates: it alone can set from when to when they are valid."""
KEYS = {
    "ecdsa": ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"),
    "rsa": ("-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"),
}


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=PATIENCE_S)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in files."""

    certfile: Path
    keyfile: Path

    def arguments(self) -> tuple[str, ...]:
        return ("--certfile", str(self.certfile), "--keyfile", str(self.keyfile))

    def copy_to(self, other: "Pair") -> None:
        """Over those files, as a tool that renews certificates does."""
        for mine, theirs in ((self.keyfile, other.keyfile), (self.certfile, other.certfile)):
            fresh = theirs.with_suffix(".fresh")
            fresh.write_bytes(mine.read_bytes())
            fresh.replace(theirs)


class Authority:
    """An issuer of certificates that only the test trusts."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._issued = 0
        self.own = Pair(home / "root.pem", home / "root.key")
        openssl("genpkey", *KEYS["ecdsa"], "-out", self.own.keyfile)
        subject = ("-subj", "/CN=test root", "-addext", "keyUsage=critical,keyCertSign")
        openssl("req", "-x509", "-new", "-key", self.own.keyfile, "-days", "30", *subject, "-out", self.own.certfile)
        (home / "index.txt").touch()
        self._register = home / "ca.conf"
        self._register.write_text(REGISTER.format(home=home, own=self.own))

    def issue(
        self,
        *names: str,
        subject: str = "",
        key: str = "ecdsa",
        days: tuple[float, float] = (-1, 20),
        client: bool = False,
        comment: str = "",
    ) -> Pair:
        """A certificate for servers of these names or addresses, or for a client; valid from and until these days."""
        self._issued += 1
        stem = self._home / f"issued-{self._issued}"
        pair = Pair(stem.with_suffix(".pem"), stem.with_suffix(".key"))
        request, extensions = stem.with_suffix(".csr"), stem.with_suffix(".ext")
        openssl("genpkey", *KEYS[key], "-out", pair.keyfile)
        openssl("req", "-new", "-key", pair.keyfile, "-subj", subject or f"/CN={names[0]}", "-out", request)
        known = ",".join(f"{'DNS' if name.strip('.0123456789') else 'IP'}:{name}" for name in names)
        usage = "clientAuth" if client else f"serverAuth\nsubjectAltName={known}"
        said = f"nsComment={comment}\n" if comment else ""
        extensions.write_text(f"basicConstraints=CA:FALSE\nextendedKeyUsage={usage}\n{said}")
        begin, end = (datetime.now(UTC) + timedelta(days=day) for day in days)
        time = ("-startdate", f"{begin:%Y%m%d%H%M%SZ}", "-enddate", f"{end:%Y%m%d%H%M%SZ}")
        files = ("-in", request, "-extfile", extensions, "-out", pair.certfile)
        openssl("ca", "-config", self._register, "-batch", "-notext", *time, *files)
        return pair

    def context(self, shows: Pair | None = None) -> ssl.SSLContext:
        """A context of clients that trust this issuer, and no other."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.own.certfile)
        if shows:
            context.load_cert_chain(shows.certfile, shows.keyfile)
        return context


def speak(sock: socket.socket, context: ssl.SSLContext, name: str = NAME) -> ssl.SSLSocket:
    """An end without TLS's own is an error (SSLEOFError) and no end."""
    return context.wrap_socket(sock, server_hostname=name, suppress_ragged_eofs=False)


def connect(address: Address, context: ssl.SSLContext, name: str = NAME, timeout_s: float = PATIENCE_S) -> Wire:
    return Wire(speak(address.connect(timeout_s), context, name))
