"""What the doctor makes of what the API says of shards."""

from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from wheelsched.cli.doctor import check_disk, judge_shards
from wheelsched.daemon.checkup import Verdict
from wheelsched.wire.shard import ShardAnswer, ShardsAnswer

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def shards(*expired: bool, free: int = 0) -> ShardsAnswer:
    return ShardsAnswer(
        items=[
            ShardAnswer(
                shard_id=uuid4(),
                address=None,
                started_at=NOW,
                is_expired=is_expired,
                renewals=1,
                partitions=[],
            )
            for is_expired in expired
        ],
        free_partitions=list(range(free)),
    )


@pytest.mark.parametrize(
    ("answer", "verdict", "told"),
    [
        (shards(), Verdict.BAD, "no living shard"),
        (shards(True, True), Verdict.BAD, "2 leases have expired"),
        (shards(True, False), Verdict.POOR, "1 leases have expired"),
        (shards(False, free=7), Verdict.POOR, "7 partitions are nobody's"),
        (shards(False, False), Verdict.FINE, "2 shards"),
    ],
)
def test_a_shard_that_is_gone_is_no_shard(
    answer: ShardsAnswer, verdict: Verdict, told: str
) -> None:
    finding = judge_shards("http://here", answer)
    assert finding.verdict is verdict
    assert told in finding.detail
    assert (finding.advice is None) == (verdict is Verdict.FINE)


def test_a_disk_that_cannot_be_looked_at_is_a_finding(tmp_path: Path) -> None:
    assert "GiB free" in check_disk(tmp_path).detail
    finding = check_disk(tmp_path / "nowhere")
    assert finding.verdict is Verdict.BAD
    assert "No such file" in finding.detail
    assert "--data-dir" in (finding.advice or "")
