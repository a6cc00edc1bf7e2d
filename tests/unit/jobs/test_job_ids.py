from random import Random

from wheelsched.jobs.job_ids import Identities

NOW_US = 1_794_837_600_123_456


def test_ids_begin_with_their_time_and_are_apart() -> None:
    identities = Identities(NOW_US, None, Random(1))
    made = [identities.next() for _ in range(1_000)]
    assert len(set(made)) == 1_000
    assert made == sorted(made)
    assert {one.version for one in made} == {7}
    assert {one.variant for one in made} == {"specified in RFC 4122"}
    assert {one.int >> 80 for one in made} == {NOW_US // 1_000}


def test_a_request_that_is_sent_again_makes_the_same_ids() -> None:
    first, again = (Identities(NOW_US, b"seed", Random(n)) for n in range(2))
    assert [first.next() for _ in range(9)] == [again.next() for _ in range(9)]
    other = Identities(NOW_US, b"other", Random(0))
    assert other.next() != Identities(NOW_US, b"seed", Random(0)).next()
