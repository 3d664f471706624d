"""The doctor's findings on certificates, from the status of servers."""

import pytest

from stanchion.doctor import certificates
from stanchion.top.status import Certificate
from support.doctor import facts, network

pytestmark = pytest.mark.own("the doctor is ours")

DAY_S = 86_400
SHOP = Certificate("/shop.pem", "CN=shop", 100 * DAY_S, 190 * DAY_S)


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        (99, "The certificate of CN=shop (/shop.pem) is not valid yet."),
        (100, None),
        (176, None),
        (176.5, "The certificate of CN=shop (/shop.pem) expires in 13 days."),
        (190, "The certificate of CN=shop (/shop.pem) expires in 0 days."),
        (191, "The certificate of CN=shop (/shop.pem) has expired."),
    ],
)
def test_it_is_told_once_of_each_that_clients_refuse_or_soon_will(day: float, expected: str | None) -> None:
    seen = facts(network(), certificates={7: (SHOP, SHOP)})
    found = list(certificates.findings(seen, day * DAY_S))
    assert [one.what for one in found] == [expected] * (expected is not None)
    assert all(one.about == "stanchion (7)" for one in found)


@pytest.mark.parametrize(("day", "count"), [(103.9, 0), (104, 0), (104.1, 1)])
def test_one_of_six_days_is_told_of_in_its_last_two(day: float, count: int) -> None:
    brief = Certificate("/brief.pem", "CN=brief", 100 * DAY_S, 106 * DAY_S)
    seen = facts(network(), certificates={7: (brief,)})
    assert len(list(certificates.findings(seen, day * DAY_S))) == count
