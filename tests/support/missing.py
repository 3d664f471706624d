"""Skips a test where the machine lacks something for it, and fails the test where no test may be left out."""

import os

IS_FAILURE = "STANCHION_MISSING_IS_FAILURE"
"""A variable that .ci/run sets for root, which can have all of it."""


def allowed(why: str) -> str:
    """The reason to skip; "" is none."""
    assert not why or os.geteuid() != 0 or not os.environ.get(IS_FAILURE), f"{IS_FAILURE} is set: {why}"
    return why
