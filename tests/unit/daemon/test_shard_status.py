"""The status of a shard, parsed from its metrics."""

from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.ports import reserved_port

from wheelsched.api.environment import ShardStatus
from wheelsched.daemon.shard_status import ShardStatusClient, parse_status
from wheelsched.metrics import shard_registry
from wheelsched.probe import status_app
from wheelsched.testing import VirtualClock
from wheelsched.vitals import Vitals


def condition_of(vitals: Vitals) -> ShardStatus:
    text = generate_latest(shard_registry(vitals, VirtualClock())).decode()
    return parse_status(text_string_to_metric_families(text))


def test_the_status_has_load_and_lateness() -> None:
    vitals = Vitals()
    vitals.runs.armed, vitals.runs.in_flight = 7, 3
    vitals.ownership.unready_partitions = 2
    vitals.runs.lateness.observe_many([900] * 98 + [4_000, 40_000])
    assert condition_of(vitals) == ShardStatus(
        lateness_p99_ms=5.0, armed=7, in_flight=3, unready_partitions=2
    )


def test_lateness_is_null_before_the_first_run() -> None:
    assert condition_of(Vitals()).lateness_p99_ms is None


def test_lateness_beyond_all_buckets_is_null() -> None:
    vitals = Vitals()
    vitals.runs.lateness.observe(10**10)
    assert condition_of(vitals).lateness_p99_ms is None


async def test_an_unreachable_shard_has_an_empty_status() -> None:
    vitals = Vitals()
    vitals.runs.armed = 7
    app = status_app(shard_registry(vitals, VirtualClock()), list)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    client = ShardStatusClient()
    with reserved_port() as port:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        address = f"http://127.0.0.1:{port}"
        assert (await client.fetch(address)).armed == 7
        await runner.cleanup()
        assert await client.fetch(address) == ShardStatus()
    assert await client.fetch("no address") == ShardStatus()
    await client.close()
