"""Postgres fails over, and nothing breaks that the checker can see.

The short form is in `make proof`; `make test-ha` has all of them and writes the table.
"""

import pytest
from tests.ha.experiment import run_failover
from tests.ha.failovers import SCENARIOS, Failover


@pytest.mark.parametrize(
    "failover",
    [
        pytest.param(
            failover,
            id=f"{failover.name}, {failover.replication}",
            marks=[
                pytest.mark.timeout(failover.limit_s + 60),
                pytest.mark.proof if failover.is_short else pytest.mark.long,
            ],
        )
        for failover in SCENARIOS
    ],
)
async def test_failover(failover: Failover) -> None:
    verdict = (await run_failover(failover)).verdict
    print(verdict.word, *verdict.slow, *verdict.remarks)
    assert not verdict.broken, "\n".join(verdict.broken)
