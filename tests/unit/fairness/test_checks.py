"""An entry has one pending check, and a check that was moved is ignored."""

from tests.unit.fairness.batches import Parcel, tenant

from wheelsched.fairness.checks import Checks
from wheelsched.fairness.limits import Origin, Tenant


def origin_of(name: str) -> Origin[Parcel]:
    return Origin((1, name), Tenant(tenant(1)))


def test_without_checks_there_is_no_next_time() -> None:
    assert Checks[Parcel]().next_us is None


def test_checks_are_due_in_the_order_of_their_times() -> None:
    checks, first, second = Checks[Parcel](), origin_of("first"), origin_of("second")
    checks.schedule(second, 20)
    checks.schedule(first, 10)
    assert checks.next_us == 10
    assert checks.pop_due(9) is None
    assert checks.pop_due(20) is first
    assert checks.pop_due(20) is second
    assert checks.pop_due(20) is None
    assert first.check_at_us is None


def test_a_moved_check_is_due_once_at_its_new_time() -> None:
    checks, origin = Checks[Parcel](), origin_of("a")
    checks.schedule(origin, 10)
    checks.schedule(origin, 30)
    assert checks.pop_due(10) is None
    assert checks.pop_due(30) is origin
    assert checks.pop_due(30) is None


def test_the_same_check_is_scheduled_once() -> None:
    checks, origin = Checks[Parcel](), origin_of("a")
    checks.schedule(origin, 10)
    checks.schedule(origin, 10)
    assert len(checks.heap) == 1
