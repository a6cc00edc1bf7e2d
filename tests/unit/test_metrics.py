import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from wheelsched.core.model import Lane, RunState, SkipReason
from wheelsched.errors import StoreTimeout
from wheelsched.metrics import (
    BOUNDS_US,
    ApiCollector,
    ShardCollector,
    api_registry,
    shard_registry,
)
from wheelsched.testing import VirtualClock
from wheelsched.values.duration import MILLISECOND, SECOND
from wheelsched.vitals import ApiVitals, QueueDepth, Vitals

DOCUMENT = Path(__file__).parents[2] / "docs" / "METRICS.md"
ROW = re.compile(r"^\| `(wheelsched_\w+)` \| (\w+) \| ([^|]*?) *\| (.+) \|$", re.MULTILINE)

NOW_US = 1_000 * SECOND


@pytest.fixture
def vitals() -> Vitals:
    vitals = Vitals()
    vitals.store.count_error(StoreTimeout())
    vitals.runs.queues["billing"] = QueueDepth(runs=7, oldest_age_us=3 * SECOND)
    return vitals


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOW_US * 1_000)


def exposed(vitals: Vitals, clock: VirtualClock) -> dict[str, Metric]:
    """The scraped metric families of wheelsched, parsed by the Prometheus client."""
    text = generate_latest(shard_registry(vitals, clock)).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return {name: each for name, each in families.items() if name.startswith("wheelsched_")}


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    found = [
        sample.value
        for family in families.values()
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    ]
    assert len(found) == 1, f"{name} {labels} has {len(found)} samples"
    return found[0]


def rows_of(families: Iterable[Metric]) -> set[tuple[str, str, str, str]]:
    """The table rows that the document should have."""
    return {
        (
            family.name + ("_total" if family.type == "counter" else ""),
            family.type,
            ", ".join(
                sorted(
                    {f"`{each}`" for sample in family.samples for each in sample.labels} - {"`le`"}
                )
            ),
            family.documentation,
        )
        for family in families
    }


@pytest.fixture
def api_vitals() -> ApiVitals:
    vitals = ApiVitals()
    vitals.observe("get_jobs", 200, 40_000)
    vitals.observe("get_jobs", 200, 3 * SECOND)
    vitals.observe("post_jobs", 409, 1)
    return vitals


def test_the_document_lists_every_metric(
    vitals: Vitals, api_vitals: ApiVitals, clock: VirtualClock
) -> None:
    of_shards, of_api = DOCUMENT.read_text().split("\n## The API\n")
    assert set(ROW.findall(of_shards)) == rows_of(ShardCollector(vitals, clock).collect())
    assert set(ROW.findall(of_api)) == rows_of(ApiCollector(api_vitals).collect())


def test_requests_are_counted_by_operation_and_status(api_vitals: ApiVitals) -> None:
    api_vitals.in_flight, api_vitals.registered = 3, 5_000
    api_vitals.linked_shards = 4
    text = generate_latest(api_registry(api_vitals)).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert value(families, "wheelsched_api_requests_total", operation="get_jobs", status="200") == 2
    assert (
        value(families, "wheelsched_api_requests_total", operation="post_jobs", status="409") == 1
    )
    duration = "wheelsched_api_request_duration_seconds"
    assert value(families, f"{duration}_bucket", operation="get_jobs", le="0.05") == 1
    assert value(families, f"{duration}_bucket", operation="get_jobs", le="+Inf") == 2
    assert value(families, f"{duration}_count", operation="post_jobs") == 1
    assert value(families, "wheelsched_api_in_flight_requests") == 3
    assert value(families, "wheelsched_api_linked_shards") == 4
    assert value(families, "wheelsched_api_registered_jobs_total") == 5_000


def test_prometheus_reads_every_family(vitals: Vitals, clock: VirtualClock) -> None:
    collected = {family.name for family in ShardCollector(vitals, clock).collect()}
    assert set(exposed(vitals, clock)) == collected


def test_process_metrics_are_exported(vitals: Vitals, clock: VirtualClock) -> None:
    assert b"process_resident_memory_bytes" in generate_latest(shard_registry(vitals, clock))


def test_counters_and_gauges_have_current_values(vitals: Vitals, clock: VirtualClock) -> None:
    exposed(vitals, clock)
    vitals.runs.entered[RunState.SUCCEEDED] += 3
    vitals.runs.skipped[SkipReason.OVERLAP] += 7
    vitals.runs.queued[Lane.LATE] = 4
    vitals.runs.armed = 9
    vitals.runs.orphans = 5
    vitals.dispatch.breakers["job", "open"] = 2
    vitals.dispatch.breaker_transitions["half_open"] += 1
    vitals.clock.offset_us = 1_794_837_600_000_001
    families = exposed(vitals, clock)
    assert value(families, "wheelsched_runs_total", state="succeeded") == 3
    assert value(families, "wheelsched_runs_total", state="dead") == 0
    assert value(families, "wheelsched_skipped_total", reason="overlap") == 7
    assert value(families, "wheelsched_queued_runs", lane="late") == 4
    assert value(families, "wheelsched_armed_runs") == 9
    assert value(families, "wheelsched_orphaned_runs") == 5
    assert value(families, "wheelsched_breakers", kind="job", state="open") == 2
    assert value(families, "wheelsched_breakers", kind="origin", state="open") == 0
    assert value(families, "wheelsched_breaker_transitions_total", to="half_open") == 1
    assert value(families, "wheelsched_store_errors_total", error="StoreTimeout") == 1
    assert value(families, "wheelsched_clock_offset_seconds") == 1_794_837_600.000001


def test_lateness_is_a_histogram_in_seconds(vitals: Vitals, clock: VirtualClock) -> None:
    vitals.runs.lateness.observe_many([50, 900, 1_500, 30 * MILLISECOND, 3_600 * SECOND])
    families = exposed(vitals, clock)
    name = "wheelsched_lateness_seconds"
    counts = {
        bound: value(families, f"{name}_bucket", le=bound)
        for bound in ("0.0001", "0.001", "0.002", "0.02", "0.05", "600.0", "+Inf")
    }
    assert list(counts.values()) == [1, 2, 3, 3, 4, 4, 5]
    assert value(families, f"{name}_count") == 5
    assert value(families, f"{name}_sum") == 3_600.03245


def test_the_bounds_reach_from_a_tenth_of_a_millisecond_to_ten_minutes() -> None:
    assert (BOUNDS_US[0], BOUNDS_US[-1]) == (100, 600 * SECOND)
    assert list(BOUNDS_US) == sorted(set(BOUNDS_US))


def test_batches_export_duration_rows_and_errors(vitals: Vitals, clock: VirtualClock) -> None:
    vitals.store.arms.observe(20 * MILLISECOND, 1_000)
    vitals.store.arms.errors += 1
    families = exposed(vitals, clock)
    assert value(families, "wheelsched_arm_duration_seconds_sum") == 0.02
    assert value(families, "wheelsched_arm_rows_total") == 1_000
    assert value(families, "wheelsched_arm_errors_total") == 1
    assert value(families, "wheelsched_load_duration_seconds_count") == 0


async def test_lease_trust_and_ages_refer_to_now(vitals: Vitals, clock: VirtualClock) -> None:
    vitals.ownership.trusted_until_us = NOW_US + 4 * SECOND
    vitals.hints.confirmed_at_us = NOW_US
    vitals.store.refreshed_at_us = NOW_US - SECOND
    await clock.advance(SECOND * 1_000)
    families = exposed(vitals, clock)
    assert value(families, "wheelsched_lease_trust_seconds") == 3
    assert value(families, "wheelsched_hint_freshness_seconds") == 1
    assert value(families, "wheelsched_refresh_age_seconds") == 2
    await clock.advance(SECOND * 1_000 * 9)
    assert value(exposed(vitals, clock), "wheelsched_lease_trust_seconds") == 0


def test_an_unknown_age_has_no_sample(vitals: Vitals, clock: VirtualClock) -> None:
    families = exposed(vitals, clock)
    assert families["wheelsched_hint_freshness_seconds"].samples == []
    assert families["wheelsched_refresh_age_seconds"].samples == []


def test_queues_show_their_depth_and_the_age_of_the_oldest_run(
    vitals: Vitals, clock: VirtualClock
) -> None:
    families = exposed(vitals, clock)
    assert value(families, "wheelsched_queue_depth_runs", queue="billing") == 7
    assert value(families, "wheelsched_queue_oldest_run_age_seconds", queue="billing") == 3
