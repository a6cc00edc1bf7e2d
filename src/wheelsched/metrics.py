"""Metrics: the vitals of a shard or an API as Prometheus asks for them.

Invariant: everything is read when it is asked for, and the hot path pays nothing. Names and labels
are those of `docs/METRICS.md` and stay; every label has a bounded set of values, and none of them
is a tenant, a job or an address.
"""

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from wheelsched.core.duration import MILLISECOND, MINUTE, SECOND
from wheelsched.core.histogram import Histogram
from wheelsched.ports import Clock
from wheelsched.vitals import ApiVitals, Batches, Vitals

Label = TypeVar("Label", bound=str)

_NS_PER_US: Final = 1_000

BOUNDS_US: Final = (
    *(step * MILLISECOND // 10 for step in (1, 2, 5)),
    *(step * MILLISECOND for step in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    *(step * SECOND for step in (1, 2, 5, 10, 30)),
    *(step * MINUTE for step in (1, 5, 10)),
)


def shard_registry(vitals: Vitals, clock: Clock) -> CollectorRegistry:
    """What a shard shows: its vitals, and memory, processor time and descriptors of the process.

    `clock` is the process's own, by which the instants in the vitals are.
    """
    registry = CollectorRegistry()
    registry.register(ShardCollector(vitals, clock))
    ProcessCollector(registry=registry)
    return registry


def api_registry(vitals: ApiVitals) -> CollectorRegistry:
    """What an API shows: its requests, and the process."""
    registry = CollectorRegistry()
    registry.register(ApiCollector(vitals))
    ProcessCollector(registry=registry)
    return registry


class ApiCollector(Collector):
    def __init__(self, vitals: ApiVitals) -> None:
        self._vitals = vitals

    def collect(self) -> Iterator[Metric]:
        vitals = self._vitals
        answered = CounterMetricFamily(
            "wheelsched_api_requests", "Requests answered", labels=["operation", "status"]
        )
        for (operation, status), count in vitals.answered.items():
            answered.add_metric([operation, str(status)], count)
        yield answered
        durations = HistogramMetricFamily(
            "wheelsched_api_request_duration_seconds",
            "How long answers took, from the head of the request on",
            labels=["operation"],
        )
        for operation, observed in vitals.durations.items():
            durations.add_metric([operation], _buckets(observed), observed.sum_us / SECOND)
        yield durations
        yield _gauge("api_in_flight_requests", "Requests begun and not answered", vitals.in_flight)
        yield _counter("api_registered_jobs", "Jobs registered", vitals.registered)


class ShardCollector(Collector):
    def __init__(self, vitals: Vitals, clock: Clock) -> None:
        self._vitals = vitals
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        yield from self._runs()
        yield from self._tenure()
        yield from self._database_clock()
        yield from self._hints()
        yield from self._plans()
        yield from self._dispatch()
        yield from self._store()

    def _runs(self) -> Iterator[Metric]:
        runs = self._vitals.runs
        yield _counters("runs", "Runs that entered a state", "state", runs.entered)
        yield _counters("skipped", "Due times that were skipped", "reason", runs.skipped)
        yield _counter("retries", "Attempts that were put off to a later time", runs.retries)
        yield _counter("stale_outcomes", "Outcomes whose token was stale", runs.stale_outcomes)
        yield _histogram("lateness", "Lateness of first attempts at the socket", runs.lateness)
        yield _gauge("wheel_timers", "Timers in the wheel", runs.wheel_timers)
        yield _gauge("armed_runs", "Runs armed and waiting for their time", runs.armed)
        yield _gauge(
            "left_behind_runs", "Runs of other shards still to be taken up", runs.left_behind
        )
        yield _gauges("queued_runs", "Runs due and waiting for their turn", "lane", runs.queued)
        yield _gauge("in_flight_runs", "Runs sent and not answered", runs.in_flight)

    def _tenure(self) -> Iterator[Metric]:
        tenure = self._vitals.tenure
        trust_us = max(tenure.trusted_until_us - self._now_us(), 0)
        yield _seconds("lease_trust", "How long the lease is still trusted", trust_us)
        yield _gauge("partitions", "Partitions that the shard owns", tenure.partitions)
        yield _gauge(
            "unready_partitions",
            "Owned partitions whose unfinished runs are still to be read: nothing of them fires",
            tenure.unready_partitions,
        )
        yield _counter("takeovers", "Dead shards whose lease was taken over", tenure.takeovers)
        yield _counter("handovers", "Partitions handed over to others", tenure.handovers)

    def _database_clock(self) -> Iterator[Metric]:
        clock = self._vitals.clock
        offset = "The database's clock minus the process's own, which counts from its boot"
        yield _seconds("clock_offset", offset, clock.offset_us)
        yield _seconds("clock_error", "How far off that offset may be", clock.error_us)
        yield _counter("clock_steps", "Steps of the database's clock", clock.steps)

    def _hints(self) -> Iterator[Metric]:
        hints = self._vitals.hints
        yield _counter("hints", "Hints received", hints.received)
        age_us = self._age_us(hints.confirmed_at_us)
        yield _seconds("hint_freshness", "Age of the last proof that no hint is missing", age_us)
        yield _counter("hint_reconnects", "Times the hints were connected anew", hints.reconnects)
        yield _counter("hint_reloads", "Jobs read again because of a hint", hints.reloads)

    def _plans(self) -> Iterator[Metric]:
        plans = self._vitals.plans
        results = {"accepted": plans.accepted, "refused": plans.refused}
        yield _counters("plans", "Jobs of applications' transactions", "result", results)

    def _dispatch(self) -> Iterator[Metric]:
        dispatch = self._vitals.dispatch
        yield _counter("requests", "Requests sent to workers", dispatch.requests)
        yield _counter("sent_bytes", "Bytes of their bodies", dispatch.sent_bytes)
        breakers = GaugeMetricFamily(
            "wheelsched_breakers", "Circuit breakers that are not closed", labels=["kind", "state"]
        )
        for labels, count in dispatch.breakers.items():
            breakers.add_metric(labels, count)
        yield breakers
        transitions = dispatch.breaker_transitions
        yield _counters(
            "breaker_transitions", "State changes of circuit breakers", "to", transitions
        )

    def _store(self) -> Iterator[Metric]:
        store = self._vitals.store
        yield from _batches("load", "Loads of a horizon", store.loads)
        yield from _batches("arm", "Batches of runs to arm", store.arms)
        yield from _batches("settle", "Batches of outcomes to settle", store.settles)
        yield _counters("store_errors", "Errors of the database", "error", store.errors)
        unarmed = GaugeMetricFamily(
            "wheelsched_oldest_unarmed_seconds",
            "How long the oldest timer or retry that is not armed has been due",
            labels=["kind"],
        )
        unarmed.add_metric(["timer"], store.unarmed.timer_us / SECOND)
        unarmed.add_metric(["retry"], store.unarmed.retry_us / SECOND)
        yield unarmed
        age_us = self._age_us(store.refreshed_at_us)
        yield _seconds("refresh_age", "Age of the last load of all partitions", age_us)

    def _now_us(self) -> int:
        return self._clock.now_ns() // _NS_PER_US

    def _age_us(self, instant_us: int | None) -> int | None:
        return None if instant_us is None else self._now_us() - instant_us


def _counter(name: str, meaning: str, value: int) -> Metric:
    return CounterMetricFamily(f"wheelsched_{name}", meaning, value=value)


def _counters(name: str, meaning: str, label: str, values: Mapping[Label, int]) -> Metric:
    family = CounterMetricFamily(f"wheelsched_{name}", meaning, labels=[label])
    for each, value in values.items():
        family.add_metric([each], value)
    return family


def _gauge(name: str, meaning: str, value: int) -> Metric:
    return GaugeMetricFamily(f"wheelsched_{name}", meaning, value=value)


def _gauges(name: str, meaning: str, label: str, values: Mapping[Label, int]) -> Metric:
    family = GaugeMetricFamily(f"wheelsched_{name}", meaning, labels=[label])
    for each, value in values.items():
        family.add_metric([each], value)
    return family


def _seconds(name: str, meaning: str, value_us: int | None) -> Metric:
    """A gauge of time; without a sample while there is nothing to tell."""
    value = None if value_us is None else value_us / SECOND
    return GaugeMetricFamily(f"wheelsched_{name}_seconds", meaning, value=value)


def _histogram(name: str, meaning: str, observed: Histogram) -> Metric:
    return HistogramMetricFamily(
        f"wheelsched_{name}_seconds",
        meaning,
        buckets=_buckets(observed),
        sum_value=observed.sum_us / SECOND,
    )


def _buckets(observed: Histogram) -> list[tuple[str, float]]:
    counts = zip(BOUNDS_US, observed.counts_up_to(BOUNDS_US), strict=True)
    bounded = [(str(bound_us / SECOND), float(count)) for bound_us, count in counts]
    return [*bounded, ("+Inf", float(observed.count))]


def _batches(stage: str, meaning: str, batches: Batches) -> Iterator[Metric]:
    yield _histogram(f"{stage}_duration", f"{meaning}: how long they took", batches.durations)
    yield _counter(f"{stage}_rows", f"{meaning}: their rows", batches.rows)
    yield _counter(f"{stage}_errors", f"{meaning}: those that failed", batches.errors)
