"""A certificate for servers of the cases with TLS, which no client verifies."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(".bench") / "tls"
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Certificate:
    """Files in PEM."""

    certfile: str
    keyfile: str


def unverifying() -> ssl.SSLContext:
    """For clients of theirs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def made() -> Certificate:
    """Made once; ECDSA P-256, as most certificates on the web are."""
    certificate = Certificate(str(FOLDER.resolve() / "bench.pem"), str(FOLDER.resolve() / "bench.key"))
    if not Path(certificate.certfile).exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        files = ("-keyout", certificate.keyfile, "-out", certificate.certfile)
        subject = ("-subj", "/CN=bench", "-days", "3650", "-addext", "subjectAltName=IP:127.0.0.1")
        subprocess.run(["openssl", "req", "-x509", *KEY, *subject, *files], check=True, capture_output=True)
    return certificate
