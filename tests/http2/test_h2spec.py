"""h2spec tries what RFC 9113's predecessor (RFC 7540) and RFC 7541 ask of a server."""

import subprocess
import xml.etree.ElementTree
from pathlib import Path

import pytest

from support.patience import PATIENCE_S
from support.server import Serve
from support.tls import Authority

H2SPEC = Path(__file__).parents[2] / "target/tools/h2spec/h2spec"
HTTP2 = ("--http-protocols", "h2,h1", "--http2-cleartext", "prior-knowledge")

IN_CLEAR_TEXT = {
    "http2/3.5": "on a port for both protocols a wrong preface is a wrong request of HTTP/1.1: it is answered 400, "
    "which h2spec takes for half a frame, and the connection ends"
}
"""The cases that fail, and why that is right. Over TLS client and server have agreed on HTTP/2."""


@pytest.mark.skipif(not H2SPEC.exists(), reason="h2spec is not there: `make test-needs`")
@pytest.mark.own("gunicorn speaks it with peers that it trusts")
@pytest.mark.parametrize("over_tls", [False, True], ids=["in clear text", "over TLS"])
def test_all_that_h2spec_tries_is_as_it_should_be(over_tls: bool, serve: Serve, tmp_path: Path) -> None:
    tls = Authority(tmp_path).issue("localhost").arguments() if over_tls else ()
    server = serve("echo:raw", *HTTP2, *tls)
    report = tmp_path / "report.xml"
    command = [str(H2SPEC), "--host", "127.0.0.1", "--port", str(server.address.port), "--junit-report", str(report)]
    command += ["--timeout", f"{PATIENCE_S:.0f}", *(("--tls", "--insecure") if over_tls else ())]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    cases = list(xml.etree.ElementTree.parse(report).iter("testcase"))
    # A connection that ends otherwise than expected is no failure to it, but an error.
    wrong = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    assert len(cases) > 140, said
    assert [case.get("package") for case in wrong] == ([] if over_tls else list(IN_CLEAR_TEXT)), said
