"""What the doctor makes of what the API says of shards."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace
from tests.api import Api

from wheelsched.cli.doctor import (
    check_api,
    check_disk,
    disk_to_check,
    judge_breakers,
    judge_dead,
    judge_shards,
)
from wheelsched.core.model import BreakerKind
from wheelsched.daemon.checkup import Finding, Verdict
from wheelsched.store.embedded import embedded_url
from wheelsched.wire.shard import BreakerAnswer, ShardAnswer, ShardsAnswer

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
    assert "not checked" in check_disk(None).detail
    finding = check_disk(tmp_path / "nowhere")
    assert finding.verdict is Verdict.BAD
    assert "No such file" in finding.detail
    assert "--data-dir" in (finding.advice or "")


def test_the_disk_is_that_of_the_embedded_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the command is called, and of no database elsewhere."""
    home = tmp_path / "home"
    monkeypatch.setattr("wheelsched.cli.doctor.data_home", lambda _: home)
    assert disk_to_check(None, None) is None
    assert disk_to_check(embedded_url(home), None) is None
    (home / "data").mkdir(parents=True)
    assert disk_to_check(None, None) == home
    assert disk_to_check(embedded_url(home), None) == home
    assert disk_to_check("postgresql://db.example/x", None) is None
    assert disk_to_check("postgresql://db.example/x", tmp_path) == tmp_path


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, "none in the last day"), (7, "7 in the last day"), (10_001, "more than 10,000 in")],
)
def test_dead_runs_are_counted(count: int, told: str) -> None:
    finding = judge_dead(count)
    assert told in finding.detail
    assert (finding.verdict is Verdict.FINE) == (count == 0) == (finding.advice is None)


def test_open_breakers_are_told() -> None:
    assert judge_breakers(shards(False)).verdict is Verdict.FINE
    (item,) = shards(False).items
    probe_at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    of_origin = BreakerAnswer(
        kind=BreakerKind.ORIGIN,
        target="https://a.b",
        job_id=None,
        opened_at=probe_at,
        next_probe_at=probe_at,
        error="refused",
    )
    of_job = replace(of_origin, kind=BreakerKind.JOB, job_id=uuid4())
    answer = ShardsAnswer(items=[replace(item, breakers=[of_origin, of_job])], free_partitions=[])
    finding = judge_breakers(answer)
    assert finding.verdict is Verdict.POOR
    assert "https://a.b and 1 more: refused; next probe at 2026-03-01T12:00" in finding.detail


async def test_the_doctor_sees_what_its_token_may_see(api: Api) -> None:
    for name in ("read", "operator"):
        await api.add_token(f"wst_{name}", api.tenant_id, name)

    async def check(token: str) -> dict[str, Finding]:
        findings = await asyncio.to_thread(check_api, api.url, token)
        return {finding.subject: finding for finding in findings}

    assert "none in the last day" in (await check("wst_read"))["dead runs"].detail
    assert "not checked" in (await check("wst_operator"))["dead runs"].detail
    assert (await check("wst_wrong"))["API"].verdict is Verdict.BAD
