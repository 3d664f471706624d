"""h2spec tries what RFC 9113's predecessor (RFC 7540) and RFC 7541 ask of a server."""

import subprocess
import xml.etree.ElementTree
from pathlib import Path

import pytest

from support.patience import PATIENCE_S
from support.server import Serve

H2SPEC = Path(__file__).parents[2] / "target/tools/h2spec/h2spec"
HTTP2 = ("--http-protocols", "h2,h1", "--http2-cleartext", "prior-knowledge")

EXPECTED: dict[str, str] = {}
"""What fails, and why that is right."""


@pytest.mark.skipif(not H2SPEC.exists(), reason="h2spec is not there: `make test-needs`")
@pytest.mark.slow
@pytest.mark.own("gunicorn speaks it with peers that it trusts")
def test_all_that_h2spec_tries_is_as_it_should_be(serve: Serve, tmp_path: Path) -> None:
    server = serve("echo:raw", *HTTP2)
    report = tmp_path / "report.xml"
    command = [str(H2SPEC), "--host", "127.0.0.1", "--port", str(server.address.port), "--junit-report", str(report)]
    command += ["--timeout", f"{PATIENCE_S:.0f}"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    cases = list(xml.etree.ElementTree.parse(report).iter("testcase"))
    failed = {f"{case.get('package')}: {case.get('classname')}" for case in cases if case.find("failure") is not None}
    assert len(cases) > 140, said
    assert failed == EXPECTED.keys(), said
