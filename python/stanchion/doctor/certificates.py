"""Findings about certificates that clients refuse, or soon will, by the servers' own word. Pure."""

from collections.abc import Iterator
from datetime import datetime, timezone

from stanchion.doctor.facts import Facts
from stanchion.doctor.finding import CRITICAL, WARNING, Finding
from stanchion.top.status import Certificate

DAY_S = 86_400
RENEW_S, RENEW_PART = 14 * DAY_S, 3
"""The smaller of these two, of its life a part, as the server has it (crates/stanchion-generation/src/expiry.rs)."""

LAST_S = 253_402_300_799
"""The last second of the year 9999: no later one can be written."""


def findings(facts: Facts, now_s: float) -> Iterator[Finding]:
    for pid, certificates in facts.certificates.items():
        # A certificate that is given twice is one finding.
        for certificate in dict.fromkeys(certificates):
            yield from _about(pid, certificate, now_s)


def _about(pid: int, certificate: Certificate, now_s: float) -> Iterator[Finding]:
    name = f"{certificate.subject or 'a certificate'} ({certificate.certfile})"
    renew = ("Renew it,", f"$ kill -HUP {pid}")
    known = f"It is for the time from {_date(certificate.not_before_s)} to {_date(certificate.not_after_s)} (/status)."
    if not certificate.not_before_s <= now_s <= certificate.not_after_s:
        is_old = now_s > certificate.not_after_s
        yield Finding(
            "certificate-invalid",
            CRITICAL,
            f"stanchion ({pid})",
            f"The certificate of {name} {'has expired' if is_old else 'is not valid yet'}.",
            known,
            "An error about the certificate, before anything is asked; browsers show a warning instead of the page.",
            renew if is_old else ("Look at the clock of this host, and whether it is the right certificate.",),
        )
    elif now_s + _renew_s(certificate) > certificate.not_after_s:
        yield Finding(
            "certificate-expires",
            WARNING,
            f"stanchion ({pid})",
            f"The certificate of {name} expires in {int(certificate.not_after_s - now_s) // DAY_S} days.",
            known,
            "Nothing until then; then an error about the certificate, before anything is asked.",
            renew,
            ("Have a tool renew it and reload the server, such as certbot with a --deploy-hook.",),
        )


def _renew_s(certificate: Certificate) -> int:
    return min(RENEW_S, (certificate.not_after_s - certificate.not_before_s) // RENEW_PART)


def _date(unix_s: int) -> str:
    return datetime.fromtimestamp(min(unix_s, LAST_S), timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
