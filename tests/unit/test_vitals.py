import pytest

from wheelsched.core.model import Lane, RunState, SkipReason
from wheelsched.core.overdue import Lateness
from wheelsched.errors import LeaseLost, StoreTimeout
from wheelsched.vitals import Vitals


def test_all_labels_exist_from_the_start() -> None:
    runs = Vitals().runs
    assert runs.entered == dict.fromkeys(RunState, 0)
    assert runs.skipped == dict.fromkeys(SkipReason, 0)
    assert runs.queued == dict.fromkeys(Lane, 0)


def test_vitals_share_no_state() -> None:
    one, other = Vitals(), Vitals()
    one.runs.entered[RunState.ARMED] += 1
    one.runs.lateness.observe(5)
    one.store.arms.observe(1_000, 20)
    one.dispatch.breakers["job", "open"] += 1
    assert other == Vitals()


def test_a_batch_counts_its_rows_and_its_time() -> None:
    arms = Vitals().store.arms
    arms.observe(2_000, 1_000)
    arms.observe(4_000, 500)
    assert (arms.durations.count, arms.durations.sum_us, arms.rows) == (2, 6_000, 1_500)


def test_errors_of_the_store_count_by_name() -> None:
    store = Vitals().store
    for error in (StoreTimeout(), LeaseLost(), StoreTimeout()):
        store.count_error(error)
    assert store.errors == {"StoreTimeout": 2, "LeaseLost": 1}


def ready() -> Vitals:
    vitals = Vitals()
    vitals.store.is_schema_current = True
    vitals.store.refreshed_at_us = 10
    vitals.ownership.trusted_until_us = 1_000
    return vitals


def test_a_new_shard_lacks_everything() -> None:
    assert Vitals().missing(0) == ["schema", "lease", "load"]


@pytest.mark.parametrize(("now_us", "missing"), [(999, []), (1_000, ["lease"])])
def test_a_shard_is_ready_while_it_trusts_its_lease(now_us: int, missing: list[str]) -> None:
    assert ready().missing(now_us) == missing


@pytest.mark.parametrize(("unready_us", "missing"), [(9_000_000, []), (11_000_000, ["sweep"])])
def test_a_shard_that_cannot_read_a_partition_is_not_ready(
    unready_us: int, missing: list[str]
) -> None:
    """A handover takes a second and does not affect readiness."""
    vitals = ready()
    vitals.ownership.unready_us = unready_us
    assert vitals.missing(0) == missing
    assert vitals.missing_to_begin(0) == []


@pytest.mark.parametrize(
    ("late", "missing"),
    [
        (Lateness(29_000_000, 0), []),
        (Lateness(31_000_000, 0), ["arm"]),
        (Lateness(0, 301_000_000), []),
    ],
)
def test_a_shard_is_not_ready_while_due_timers_are_unarmed(
    late: Lateness, missing: list[str]
) -> None:
    vitals = ready()
    vitals.store.unarmed = late
    assert vitals.missing(0) == missing
    assert vitals.missing_to_begin(0) == []


@pytest.mark.parametrize(("age_s", "missing"), [(29, []), (31, ["arm"])])
def test_a_shard_is_not_ready_if_it_cannot_check_for_overdue_timers(
    age_s: int, missing: list[str]
) -> None:
    vitals = ready()
    vitals.ownership.trusted_until_us = 1 << 62
    vitals.store.unarmed_read_at_us = 0
    assert vitals.missing(age_s * 1_000_000) == missing
