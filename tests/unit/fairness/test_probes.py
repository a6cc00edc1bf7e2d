"""A failing job is held back, and the other jobs of its origin go on."""

from collections.abc import Iterable
from typing import TypeAlias

import pytest
from tests.unit.fairness.batches import Parcel, route, tenant

from wheelsched.config import BreakerConfig, FairnessConfig
from wheelsched.core.model import Lane
from wheelsched.fairness import fair_queue
from wheelsched.fairness.breaker import BreakerState, Verdict
from wheelsched.fairness.fair_queue import FairQueue
from wheelsched.values.duration import SECOND

Queue: TypeAlias = FairQueue[Parcel]

CONFIG = FairnessConfig(
    max_queued=100, breaker=BreakerConfig(failures=3, open_initial_ms=1_000, open_max_ms=4_000)
)
NOW = 1_000 * SECOND
HERE = route(tenant(1))


@pytest.fixture
def queue() -> Queue:
    return FairQueue(CONFIG, lambda _: 1)


def put(queue: Queue, subject: str, count: int = 1, priority: int = 0) -> list[Parcel]:
    batches = [Parcel(HERE, subject=subject, priority=priority) for _ in range(count)]
    assert all(map(queue.put, batches))
    return batches


def take_all(queue: Queue, now_us: int = NOW) -> list[Parcel]:
    taken = []
    while (batch := queue.take(now_us)) is not None:
        taken.append(batch)
    return taken


def end(
    queue: Queue, batches: Iterable[Parcel], verdict: Verdict | None, now_us: int = NOW
) -> None:
    for batch in batches:
        queue.done(batch, now_us, verdict)


def fail(queue: Queue, subject: str, verdict: Verdict = Verdict.FAILED) -> None:
    """Fails often enough to open the breaker of the job."""
    put(queue, subject, CONFIG.breaker.failures)
    end(queue, take_all(queue), verdict)


def next_probe(queue: Queue) -> tuple[Parcel, int]:
    """The next batch that goes, and when, after the waits of the queue."""
    while not (taken := take_all(queue, now_us := queue.wake_at_us() or 0)):
        pass
    (probe,) = taken
    return probe, now_us


def open_origin(queue: Queue) -> None:
    fail(queue, "away", Verdict.UNREACHED)
    assert [one.state for one in queue.breakers().values()] == [BreakerState.OPEN]


@pytest.mark.parametrize("verdict", [Verdict.FAILED, Verdict.SILENT])
def test_a_failing_job_does_not_block_others_of_its_origin(queue: Queue, verdict: Verdict) -> None:
    fail(queue, "fails", verdict)
    put(queue, "fails", 5, priority=9)
    well = put(queue, "well", 5)
    assert take_all(queue) == well
    assert [job.breaker.state for job in queue.failing_jobs()] == [BreakerState.OPEN]
    assert len(queue) == 5


def test_queued_batches_of_a_failing_job_block_no_other(queue: Queue) -> None:
    first = put(queue, "fails", CONFIG.breaker.failures)
    for batch in first:
        assert queue.take(NOW) is batch
    put(queue, "fails", 50)
    well = put(queue, "well", 2)
    end(queue, first, Verdict.FAILED)
    assert take_all(queue) == well
    assert len(queue) == 50


def test_a_failing_job_is_probed_with_one_batch_and_resumes_on_success(
    queue: Queue,
) -> None:
    fail(queue, "fails")
    held = put(queue, "fails", 5)
    assert queue.wake_at_us() == NOW + SECOND
    probe = take_all(queue, NOW + SECOND)
    assert probe == held[:1]
    end(queue, probe, Verdict.ANSWERED, NOW + SECOND)
    assert queue.failing_jobs() == []
    assert take_all(queue, NOW + SECOND) == held[1:]


def test_a_failing_job_waits_twice_as_long_after_each_probe(queue: Queue) -> None:
    fail(queue, "fails")
    put(queue, "fails", 5)
    end(queue, take_all(queue, NOW + SECOND), Verdict.FAILED, NOW + SECOND)
    assert take_all(queue, NOW + 3 * SECOND - 1) == []
    assert len(take_all(queue, NOW + 3 * SECOND)) == 1


def test_a_withdrawn_probe_of_a_job_is_replaced_by_another(queue: Queue) -> None:
    fail(queue, "fails")
    held = put(queue, "fails", 3)
    end(queue, take_all(queue, NOW + SECOND), None, NOW + SECOND)
    assert take_all(queue, NOW + SECOND) == held[1:2]


@pytest.mark.parametrize("verdict", [Verdict.OVERTAKEN, None])
def test_an_overtaken_attempt_says_nothing_about_its_job(
    queue: Queue, verdict: Verdict | None
) -> None:
    fail(queue, "well", Verdict.OVERTAKEN)
    assert queue.failing_jobs() == []
    fail(queue, "fails")
    held = put(queue, "fails", 2)
    end(queue, take_all(queue, NOW + SECOND), verdict, NOW + SECOND)
    assert take_all(queue, NOW + SECOND) == held[1:]


def test_a_failed_response_shows_that_the_origin_is_up(queue: Queue) -> None:
    open_origin(queue)
    put(queue, "fails", 2)
    well = put(queue, "well", 2)
    probe = take_all(queue, NOW + SECOND)
    assert len(probe) == 1
    end(queue, probe, Verdict.FAILED, NOW + SECOND)
    assert queue.breakers() == {}
    assert set(well) <= set(take_all(queue, NOW + SECOND))


def test_one_hanging_job_does_not_open_the_breaker_of_its_origin(queue: Queue) -> None:
    for _ in range(10):
        fail(queue, "hangs", Verdict.SILENT)
    assert {one.state for one in queue.breakers().values()} == {BreakerState.CLOSED}
    put(queue, "hangs too")
    put(queue, "hangs as well")
    end(queue, take_all(queue), Verdict.SILENT)
    assert {one.state for one in queue.breakers().values()} == {BreakerState.OPEN}


def test_jobs_take_turns_to_probe_an_origin(queue: Queue) -> None:
    open_origin(queue)
    put(queue, "a", 20, priority=9)
    put(queue, "b", 20)
    put(queue, "c", 20)
    probed = []
    for _ in range(6):
        probe, now_us = next_probe(queue)
        probed.append(probe.subject[0])
        end(queue, [probe], Verdict.UNREACHED, now_us)
    assert probed == ["a", "b", "c", "a", "b", "c"]


def test_a_hanging_probe_does_not_delay_the_next_one(queue: Queue) -> None:
    open_origin(queue)
    hanging = put(queue, "hangs", 20)
    well = put(queue, "well", 2)
    assert take_all(queue, NOW + SECOND) == hanging[:1]
    assert take_all(queue, NOW + 3 * SECOND) == well[:1]
    end(queue, well[:1], Verdict.ANSWERED, NOW + 3 * SECOND)
    assert {*take_all(queue, NOW + 3 * SECOND)} == {*well[1:], *hanging[1:]}


def test_a_single_job_keeps_probing_its_origin(queue: Queue) -> None:
    open_origin(queue)
    held = put(queue, "only", 3)
    for batch in held:
        probe, now_us = next_probe(queue)
        assert probe is batch
        end(queue, [batch], Verdict.UNREACHED, now_us)
    assert len(queue) == 0
    assert take_all(queue, now_us + 4 * SECOND) == []
    another = put(queue, "only")
    assert take_all(queue, now_us + 4 * SECOND) == another


def test_failing_jobs_do_not_use_up_the_space_of_others(queue: Queue) -> None:
    fail(queue, "fails")
    put(queue, "fails", CONFIG.max_queued)
    assert not queue.put(Parcel(HERE, subject="fails"))
    put(queue, "well", CONFIG.max_queued)
    assert not queue.put(Parcel(HERE, subject="well"))


def test_a_failing_job_without_requests_is_forgotten(queue: Queue) -> None:
    fail(queue, "fails")
    while (wake_at_us := queue.wake_at_us()) is not None:
        assert queue.take(wake_at_us) is None
    assert not queue._failing
    assert not queue._limits.origins


def test_the_number_of_failing_jobs_is_limited(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fair_queue, "FAILING", 2)
    queue = FairQueue(CONFIG, lambda _: 1)
    fail(queue, "first")
    held = put(queue, "first", 2)
    fail(queue, "second")
    assert take_all(queue) == []
    fail(queue, "third")
    assert take_all(queue) == held
    assert len(queue.failing_jobs()) == 2


def test_late_batches_of_a_failing_job_are_held_back_too(queue: Queue) -> None:
    fail(queue, "fails")
    late = Parcel(HERE, lane=Lane.LATE, subject="fails")
    assert queue.put(late)
    assert take_all(queue) == []
    assert queue.queued(Lane.LATE) == 1
    assert take_all(queue, NOW + SECOND) == [late]


def test_a_late_probe_does_not_block_one_on_time(queue: Queue) -> None:
    fail(queue, "fails")
    late, on_time = (Parcel(HERE, lane=lane, subject="fails") for lane in (Lane.LATE, Lane.ON_TIME))
    assert queue.put(late)
    assert queue.put(on_time)
    assert take_all(queue, NOW + SECOND) == [on_time]


def test_a_late_probe_of_an_origin_does_not_block_one_on_time(queue: Queue) -> None:
    open_origin(queue)
    (first,) = put(queue, "only")
    assert take_all(queue, NOW + SECOND) == [first]
    late, on_time = (Parcel(HERE, lane=lane, subject="only") for lane in (Lane.LATE, Lane.ON_TIME))
    assert queue.put(late)
    assert queue.put(on_time)
    assert take_all(queue, NOW + 3 * SECOND) == [on_time]


def test_a_withdrawn_probe_of_a_job_and_its_origin_is_replaced(
    queue: Queue,
) -> None:
    fail(queue, "fails")
    open_origin(queue)
    held = put(queue, "fails", 2)
    for batch in held:
        assert take_all(queue, NOW + SECOND) == [batch]
        end(queue, [batch], None, NOW + SECOND)


def test_a_job_is_kept_while_its_probe_waits_for_the_origin(queue: Queue) -> None:
    fail(queue, "fails")
    open_origin(queue)
    put(queue, "well", priority=9)
    put(queue, "fails")
    now_us = NOW
    for _ in range(20):
        probe, now_us = next_probe(queue)
        end(queue, [probe], Verdict.UNREACHED, now_us)
        put(queue, "well", priority=9)
        assert [job.subject for job in queue.failing_jobs()]
