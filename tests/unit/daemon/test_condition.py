"""What a shard's metrics tell the API of it."""

from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from wheelsched.api.surroundings import Condition
from wheelsched.daemon.condition import ShardInquiry, read_condition
from wheelsched.metrics import shard_registry
from wheelsched.probe import status_app
from wheelsched.testing import VirtualClock
from wheelsched.vitals import Vitals


def condition_of(vitals: Vitals) -> Condition:
    text = generate_latest(shard_registry(vitals, VirtualClock())).decode()
    return read_condition(text_string_to_metric_families(text))


def test_a_shard_says_how_much_it_has_and_how_late_it_is() -> None:
    vitals = Vitals()
    vitals.runs.armed, vitals.runs.in_flight = 7, 3
    vitals.tenure.unready_partitions = 2
    vitals.runs.lateness.observe_many([900] * 98 + [4_000, 40_000])
    assert condition_of(vitals) == Condition(
        lateness_p99_ms=5.0, armed=7, in_flight=3, unready_partitions=2
    )


def test_one_that_has_sent_nothing_is_not_late() -> None:
    assert condition_of(Vitals()).lateness_p99_ms is None


def test_what_is_later_than_every_bound_has_none() -> None:
    vitals = Vitals()
    vitals.runs.lateness.observe(10**10)
    assert condition_of(vitals).lateness_p99_ms is None


async def test_a_shard_is_asked_at_its_address_and_may_be_gone() -> None:
    vitals = Vitals()
    vitals.runs.armed = 7
    app = status_app(shard_registry(vitals, VirtualClock()), list)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"http://127.0.0.1:{runner.addresses[0][1]}"
    inquiry = ShardInquiry()
    assert (await inquiry.ask(address)).armed == 7
    await runner.cleanup()
    assert await inquiry.ask(address) == Condition()
    assert await inquiry.ask("no address") == Condition()
    await inquiry.close()
