"""A machine that stalls explains a duplicate only if it may have cost somebody a lease."""

import pytest
from tests.faults import logbook
from tests.faults.logbook import Logbook

SECOND_US = 1_000_000


@pytest.mark.parametrize(
    ("stalls", "kinds"),
    [
        ([(10.0, 10.6)], ["stall"]),
        ([(10.0, 13.5)], ["store"]),
        ([(10.0, 11.0), (11.2, 12.2), (12.3, 13.5)], ["stall", "stall", "store"]),
        ([(10.0, 10.6), (14.0, 14.6)], ["stall", "stall"]),  # it was there in between
        ([(10.0, 12.0), (10.1, 12.1)], ["stall", "stall"]),  # one, that both probes saw
        ([(10.0, 11.0), (20.0, 21.0)], ["stall", "stall"]),
    ],
)
def test_short_ones_count_together(
    stalls: list[tuple[float, float]], kinds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    book = Logbook()
    for from_s, until_s in stalls:
        monkeypatch.setattr(logbook, "now_us", lambda at_s=until_s: int(at_s * SECOND_US))
        book.stalled("store", int(from_s * SECOND_US))
    assert [fault.kind for fault in book.faults] == kinds
    assert len(book.stalls_us) == len(stalls)
