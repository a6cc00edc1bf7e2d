"""The findings of `doctor` over the API."""

import asyncio
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
from msgspec.structs import replace
from tests.api import Api

from wheelsched.cli.commands.doctor import (
    assess_breakers,
    assess_dead,
    assess_losses,
    assess_shards,
    check_api,
    check_disk,
    disk_to_check,
)
from wheelsched.core.model import BreakerKind
from wheelsched.daemon.checkup import Finding, Health
from wheelsched.embedded.cluster import LONGEST_SOCKET_PATH, runtime_directory
from wheelsched.embedded.postgres import embedded_url
from wheelsched.wire.instant import instant_text
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
        (shards(), Health.FAILED, "no shard is alive"),
        (shards(True, True), Health.FAILED, "2 expired leases"),
        (shards(True, False), Health.WARNING, "1 expired lease,"),
        (shards(False, free=7), Health.WARNING, "7 partitions without an owner"),
        (shards(False, False), Health.OK, "2 shards alive"),
        (shards(False), Health.OK, "1 shard alive"),
    ],
)
def test_expired_shards_are_reported(answer: ShardsAnswer, verdict: Health, told: str) -> None:
    finding = assess_shards("http://here", answer)
    assert finding.verdict is verdict
    assert told in finding.detail
    assert (finding.advice is None) == (verdict is Health.OK)


def test_an_unreadable_disk_is_reported(tmp_path: Path) -> None:
    assert "GiB free" in check_disk(tmp_path).detail
    assert "not checked" in check_disk(None).detail
    finding = check_disk(tmp_path / "nowhere")
    assert finding.verdict is Health.FAILED
    assert "No such file" in finding.detail
    assert "--data-dir" in (finding.advice or "")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose path is short enough for a socket, however long `tmp_path` is."""
    with TemporaryDirectory() as directory:
        yield Path(directory)


def test_the_disk_is_that_of_the_embedded_database(
    short_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the working directory is, and never of an external database."""
    home = short_path / "home"
    monkeypatch.setattr("wheelsched.cli.commands.doctor.data_home", lambda _: home)
    assert disk_to_check(None, None) is None
    assert disk_to_check(embedded_url(home), None) is None
    (home / "data").mkdir(parents=True)
    assert disk_to_check(None, None) == home
    assert disk_to_check(embedded_url(home), None) == home
    assert disk_to_check("postgresql://db.example/x", None) is None
    assert disk_to_check("postgresql://db.example/x", short_path) == short_path


def test_the_disk_is_found_if_the_path_is_too_long_for_a_socket(tmp_path: Path) -> None:
    home = tmp_path / ("x" * LONGEST_SOCKET_PATH)
    url = embedded_url(home)
    try:
        assert disk_to_check(url, None) is None
        (home / "data").mkdir(parents=True)
        assert disk_to_check(url, None) == home
    finally:
        shutil.rmtree(runtime_directory(home))


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, "none in the last day"), (7, "7 in the last day"), (10_001, "more than 10,000 in")],
)
def test_dead_runs_are_counted(count: int, told: str) -> None:
    finding = assess_dead(count)
    assert told in finding.detail
    assert (finding.verdict is Health.OK) == (count == 0) == (finding.advice is None)


def test_open_breakers_are_reported() -> None:
    assert assess_breakers(shards(False)).verdict is Health.OK
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
    finding = assess_breakers(answer)
    assert finding.verdict is Health.WARNING
    assert "https://a.b and 1 more: refused; next probe at 2026-03-01T12:00" in finding.detail


def test_lost_data_is_reported() -> None:
    (item, other) = shards(False, False).items
    assert assess_losses(shards(False)) == []
    noticed = [replace(item, went_back_at=NOW), replace(other, went_back_at=None)]
    (finding,) = assess_losses(ShardsAnswer(items=noticed, free_partitions=[]))
    assert finding.verdict is Health.WARNING
    assert instant_text(NOW) in finding.detail


async def test_doctor_skips_checks_that_the_token_does_not_permit(api: Api) -> None:
    for name in ("read", "operator"):
        await api.add_token(f"wst_{name}", api.tenant_id, name)

    async def check(token: str) -> dict[str, Finding]:
        findings = await asyncio.to_thread(check_api, api.url, token)
        return {finding.subject: finding for finding in findings}

    assert "none in the last day" in (await check("wst_read"))["dead runs"].detail
    assert "not checked" in (await check("wst_operator"))["dead runs"].detail
    assert (await check("wst_wrong"))["API"].verdict is Health.FAILED
