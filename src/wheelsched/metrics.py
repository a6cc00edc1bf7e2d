"""Prometheus metrics of a shard and of an API, collected from their vitals.

Invariant: values are collected on scrape, so the hot path pays nothing. Names and labels are those
of `docs/METRICS.md` and do not change. Every label has a bounded set of values; none is a tenant, a
job or an address. Of queues only the longest are shown.
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

from wheelsched.core.histogram import Histogram
from wheelsched.ports import Clock
from wheelsched.values.duration import MILLISECOND, MINUTE, SECOND
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
    """The registry of a shard: its vitals and the metrics of its process.

    `clock` is the process's own clock, which the instants in the vitals refer to.
    """
    registry = CollectorRegistry()
    registry.register(ShardCollector(vitals, clock))
    ProcessCollector(registry=registry)
    return registry


def api_registry(vitals: ApiVitals) -> CollectorRegistry:
    """The registry of an API: its requests and the metrics of its process."""
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
            "Time from the first header of a request to its response",
            labels=["operation"],
        )
        for operation, observed in vitals.durations.items():
            durations.add_metric([operation], _buckets(observed), observed.sum_us / SECOND)
        yield durations
        yield _gauge("api_in_flight_requests", "Requests in progress", vitals.in_flight)
        yield _gauge(
            "api_waiting_requests",
            "Claims waiting for runs, and open streams of workers",
            vitals.waiting,
        )
        yield _gauge(
            "api_linked_shards",
            "Shards whose runs the workers of this process can get",
            vitals.linked_shards,
        )
        yield _counter("api_registered_jobs", "Jobs registered", vitals.registered)


class ShardCollector(Collector):
    def __init__(self, vitals: Vitals, clock: Clock) -> None:
        self._vitals = vitals
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        yield from self._runs()
        yield from self._ownership()
        yield from self._database_clock()
        yield from self._hints()
        yield from self._plans()
        yield from self._dispatch()
        yield from self._store()

    def _runs(self) -> Iterator[Metric]:
        runs = self._vitals.runs
        yield _counters("runs", "Runs that entered a state", "state", runs.entered)
        yield _counters("skipped", "Due times skipped", "reason", runs.skipped)
        yield _counter("retries", "Retries scheduled", runs.retries)
        yield _counter(
            "stale_outcomes", "Outcomes rejected because of a stale token", runs.stale_outcomes
        )
        yield _counter(
            "repeated_runs",
            "Finished runs claimed again because the database had forgotten their end",
            runs.repeated,
        )
        yield _histogram(
            "lateness", "Lateness of first attempts when written to the socket", runs.lateness
        )
        yield _gauge("wheel_timers", "Timers in the wheel", runs.wheel_timers)
        yield _gauge("armed_runs", "Runs armed and not yet due", runs.armed)
        yield _gauge("orphaned_runs", "Runs of other shards waiting to be adopted", runs.orphans)
        yield _gauges("queued_runs", "Runs due and waiting to be sent", "lane", runs.queued)
        yield _gauge("in_flight_runs", "Runs sent and awaiting a response", runs.in_flight)
        yield _gauge(
            "handed_out_runs",
            "Runs handed to workers that pull, without an outcome",
            runs.handed_out,
        )
        yield _gauges(
            "queue_depth_runs",
            "Runs of a queue that are due and wait for a worker; the longest queues only",
            "queue",
            {name: depth.runs for name, depth in runs.queues.items()},
        )
        oldest = GaugeMetricFamily(
            "wheelsched_queue_oldest_run_age_seconds",
            "How long the oldest of these runs has waited",
            labels=["queue"],
        )
        for name, depth in runs.queues.items():
            oldest.add_metric([name], depth.oldest_age_us / SECOND)
        yield oldest

    def _ownership(self) -> Iterator[Metric]:
        ownership = self._vitals.ownership
        trust_us = max(ownership.trusted_until_us - self._now_us(), 0)
        yield _seconds("lease_trust", "Time until the lease is no longer trusted", trust_us)
        yield _gauge("partitions", "Partitions owned by the shard", ownership.partitions)
        yield _gauge(
            "unready_partitions",
            "Owned partitions that cannot fire yet because their unfinished runs are not loaded",
            ownership.unready_partitions,
        )
        yield _counter("takeovers", "Dead shards taken over", ownership.takeovers)
        yield _counter("handovers", "Partitions handed over to other shards", ownership.handovers)
        yield _counter(
            "database_went_back",
            "Times the shard noticed that the database had lost committed data",
            ownership.went_back,
        )

    def _database_clock(self) -> Iterator[Metric]:
        clock = self._vitals.clock
        offset = "Database clock minus process clock, which counts from the host's boot"
        yield _seconds("clock_offset", offset, clock.offset_us)
        yield _seconds("clock_error", "Maximum error of the clock offset", clock.error_us)
        yield _counter("clock_steps", "Steps of the database clock", clock.steps)

    def _hints(self) -> Iterator[Metric]:
        hints = self._vitals.hints
        yield _counter("hints", "Hints received", hints.received)
        age_us = self._age_us(hints.confirmed_at_us)
        yield _seconds(
            "hint_freshness", "Time since the last check that no hint is missing", age_us
        )
        yield _counter("hint_reconnects", "Reconnects of the hint listener", hints.reconnects)
        yield _counter("hint_reloads", "Jobs reloaded because of a hint", hints.reloads)

    def _plans(self) -> Iterator[Metric]:
        plans = self._vitals.plans
        results = {"accepted": plans.accepted, "refused": plans.refused}
        yield _counters(
            "plans", "Jobs scheduled in SQL, by the result of planning", "result", results
        )

    def _dispatch(self) -> Iterator[Metric]:
        dispatch = self._vitals.dispatch
        yield _counter("requests", "Requests sent to workers", dispatch.requests)
        yield _counter("sent_bytes", "Bytes of request bodies sent to workers", dispatch.sent_bytes)
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
        yield from _batches("load", "Horizon loads", store.loads)
        yield from _batches("arm", "Arm batches", store.arms)
        yield from _batches("settle", "Settle batches", store.settles)
        yield _counters("store_errors", "Database errors", "error", store.errors)
        unarmed = GaugeMetricFamily(
            "wheelsched_oldest_unarmed_seconds",
            "Time since the oldest unarmed timer or retry was due",
            labels=["kind"],
        )
        unarmed.add_metric(["timer"], store.unarmed.timer_us / SECOND)
        unarmed.add_metric(["retry"], store.unarmed.retry_us / SECOND)
        yield unarmed
        age_us = self._age_us(store.refreshed_at_us)
        yield _seconds("refresh_age", "Time since the last load of all partitions", age_us)

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
    """A gauge in seconds; it has no sample while the value is None."""
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
    yield _histogram(f"{stage}_duration", f"{meaning}: duration", batches.durations)
    yield _counter(f"{stage}_rows", f"{meaning}: rows", batches.rows)
    yield _counter(f"{stage}_errors", f"{meaning}: failures", batches.errors)
