"""A network namespace of the test's own, where settings may be small."""

from collections.abc import Iterator

import pytest

from support import netns
from support.netns import Namespace


@pytest.fixture(scope="session")
def why_no_namespace() -> str:
    return netns.unavailable()


@pytest.fixture
def namespace(why_no_namespace: str) -> Iterator[Namespace]:
    if why_no_namespace:
        pytest.skip(f"NOT TRIED IN A NAMESPACE: {why_no_namespace}")
    made = Namespace()
    yield made
    made.remove()
