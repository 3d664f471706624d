"""Each test has a host of its own."""

from collections.abc import Iterator

import pytest

from support.site import Site


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()
