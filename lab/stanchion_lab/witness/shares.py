"""How evenly the work fell on the workers."""

from collections.abc import Mapping


def complete(shares: Mapping[str, float], workers: int) -> dict[str, float]:
    """With those that did nothing, where workers are called by their places, from 0."""
    places = {str(place): 0.0 for place in range(workers)}
    return {**places, **shares} if shares.keys() <= places.keys() else dict(shares)


def figures(shares: Mapping[str, float]) -> dict[str, float]:
    """`share.max` and `share.min`: of the whole, what the busiest did, and the idlest. None of a whole of nothing."""
    whole = sum(shares.values())
    return {"share.max": max(shares.values()) / whole, "share.min": min(shares.values()) / whole} if whole else {}
