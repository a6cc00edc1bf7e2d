"""What the doctor says about replication."""

import pytest

from wheelsched.daemon.checkup import Health, assess_replication
from wheelsched.store.schema.replication import Replication
from wheelsched.wire.instant import instant, instant_text

NONE = Replication(standbys=0, is_synchronous=False, lag_bytes=None)
ASYNCHRONOUS = Replication(standbys=2, is_synchronous=False, lag_bytes=4_096)
SYNCHRONOUS = Replication(standbys=1, is_synchronous=True, lag_bytes=None)
EARLIER_US, LATER_US = 1_794_830_400_000_000, 1_794_834_000_000_000


@pytest.mark.parametrize(
    ("replication", "verdict", "detail"),
    [
        (NONE, Health.OK, "no standby is connected"),
        (ASYNCHRONOUS, Health.WARNING, "asynchronous, 2 standbys, at most 4,096 bytes behind"),
        (SYNCHRONOUS, Health.OK, "synchronous, 1 standby"),
    ],
)
def test_a_failover_that_may_lose_data_is_a_warning(
    replication: Replication, verdict: Health, detail: str
) -> None:
    finding = assess_replication(replication, [])
    assert (finding.verdict, finding.detail) == (verdict, detail)
    assert (finding.advice is None) == (verdict is Health.OK)


@pytest.mark.parametrize("replication", [NONE, ASYNCHRONOUS, SYNCHRONOUS])
def test_a_database_that_went_back_is_a_warning(replication: Replication) -> None:
    finding = assess_replication(replication, [LATER_US, EARLIER_US])
    assert finding.verdict is Health.WARNING
    assert finding.detail.startswith(
        "2 shards noticed that the database went back to an older state, last at "
        f"{instant_text(instant(LATER_US))}; "
    )
    assert finding.advice is not None
    assert "are lost" in finding.advice
    assert ("synchronous replication" in finding.advice) is not replication.is_synchronous
