import msgspec
import pytest

from wheelsched.core.histogram import LARGEST_US, Histogram


def observed(*values_us: int) -> Histogram:
    histogram = Histogram()
    histogram.observe_many(values_us)
    return histogram


def test_of_nothing_everything_is_zero() -> None:
    histogram = Histogram()
    assert (histogram.count, histogram.sum_us, histogram.max_us) == (0, 0, 0)
    assert histogram.quantile(0.99) == 0
    assert histogram.counts_up_to([0, LARGEST_US]) == [0, 0]


def test_small_values_are_exact() -> None:
    histogram = observed(*range(64))
    assert [histogram.quantile(rank / 64) for rank in range(1, 65)] == list(range(64))


def test_a_quantile_is_never_more_than_the_largest_value() -> None:
    assert observed(1_000_001).quantile(0.5) == 1_000_001


def test_a_negative_value_counts_as_zero() -> None:
    histogram = observed(-5, -1_000_000)
    assert (histogram.count, histogram.sum_us, histogram.quantile(1)) == (2, 0, 0)


def test_a_value_above_the_largest_counts_as_the_largest() -> None:
    histogram = observed(LARGEST_US + 1, LARGEST_US * 9, 3)
    assert (histogram.count, histogram.max_us) == (3, LARGEST_US)
    assert histogram.sum_us == 2 * LARGEST_US + 3
    assert histogram.counts_up_to([LARGEST_US - 1, LARGEST_US, 2 * LARGEST_US]) == [1, 3, 3]


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_outside_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="expected 0 to 1"):
        Histogram().quantile(share)


def test_it_travels_as_json() -> None:
    histogram = observed(1, 2_000, 3_000_000)
    assert msgspec.json.decode(msgspec.json.encode(histogram), type=Histogram) == histogram
