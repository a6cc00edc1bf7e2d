import pytest

from wheelsched.core.lease import LeaseTerms, LeaseWatch, Observation, Trust
from wheelsched.errors import InvalidLeaseTerms
from wheelsched.values.duration import SECOND

TERMS = LeaseTerms(ttl_us=5 * SECOND, margin_us=SECOND)


def look(
    at_s: float, *, renewals: int = 1, is_expired: bool = True, took_s: float = 0
) -> Observation:
    sent_us = int(at_s * SECOND)
    return Observation(
        renewals=renewals,
        is_expired=is_expired,
        sent_us=sent_us,
        received_us=sent_us + int(took_s * SECOND),
    )


def watched(*looks: Observation) -> LeaseWatch:
    watch = LeaseWatch.begin(looks[0])
    for further in looks[1:]:
        watch = watch.after(further, TERMS)
    return watch


@pytest.mark.parametrize("margin_us", [-1, 0, 5 * SECOND, 6 * SECOND])
def test_the_margin_is_a_part_of_the_ttl(margin_us: int) -> None:
    with pytest.raises(InvalidLeaseTerms):
        LeaseTerms(ttl_us=5 * SECOND, margin_us=margin_us)


def test_without_a_renewal_nothing_is_trusted() -> None:
    assert not Trust().holds_at(0)
    assert Trust().left_us(0) == 0


def test_trust_counts_from_the_sending_of_the_renewal() -> None:
    trust = Trust().renewed(10 * SECOND, TERMS)
    assert trust.holds_at(14 * SECOND - 1)
    assert not trust.holds_at(14 * SECOND)
    assert trust.left_us(13 * SECOND) == SECOND
    assert trust.left_us(20 * SECOND) == 0


def test_a_renewal_whose_answer_came_after_its_window_gives_no_trust() -> None:
    trust = Trust().renewed(10 * SECOND, TERMS)
    assert not trust.holds_at(30 * SECOND)


def test_an_answer_that_was_overtaken_does_not_shorten_trust() -> None:
    trust = Trust().renewed(11 * SECOND, TERMS).renewed(10 * SECOND, TERMS)
    assert trust == Trust().renewed(11 * SECOND, TERMS)


def test_a_lost_lease_is_trusted_no_more_and_never_again() -> None:
    lost = Trust().renewed(10 * SECOND, TERMS).lost()
    assert not lost.holds_at(10 * SECOND)
    assert not lost.renewed(11 * SECOND, TERMS).holds_at(11 * SECOND)


def test_one_look_is_not_enough_to_take_over() -> None:
    assert not watched(look(0)).may_take_over(TERMS)


def test_a_lease_that_expired_and_stood_still_for_one_ttl_may_be_taken() -> None:
    last_us = look(4.999999)
    assert last_us.sent_us == 5 * SECOND - 1
    assert not watched(look(0), look(2), look(4), last_us).may_take_over(TERMS)
    assert watched(look(0), look(2), look(4), look(5)).may_take_over(TERMS)


def test_a_lease_that_has_not_expired_may_not_be_taken() -> None:
    watch = watched(look(0), look(3), look(6, is_expired=False))
    assert not watch.may_take_over(TERMS)


def test_a_jump_of_the_database_clock_causes_no_takeover() -> None:
    """Every row looks expired, but its shard still renews it."""
    looks = [look(at_s, renewals=at_s) for at_s in range(20)]
    for seen in range(1, 20):
        assert not watched(*looks[:seen]).may_take_over(TERMS)


def test_a_renewal_starts_the_watch_again() -> None:
    looks = [look(0), look(4), look(5, renewals=2), look(9, renewals=2), look(10, renewals=2)]
    assert not watched(*looks[:4]).may_take_over(TERMS)
    assert watched(*looks).may_take_over(TERMS)


def test_the_time_that_the_looks_took_does_not_count() -> None:
    """The time between two readings may be shorter than between sending and receiving."""
    assert not watched(look(0, took_s=2), look(5), look(6.9)).may_take_over(TERMS)
    assert watched(look(0, took_s=2), look(5), look(7)).may_take_over(TERMS)


def test_a_candidate_that_saw_nothing_for_one_ttl_begins_again() -> None:
    """Postgres was unreachable for a minute: no shard could renew, and none is taken over."""
    assert not watched(look(0), look(60)).may_take_over(TERMS)
    assert watched(look(0), look(60), look(63), look(65)).may_take_over(TERMS)
