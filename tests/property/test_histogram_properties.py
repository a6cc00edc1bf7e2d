"""Histograms against sorted lists."""

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from wheelsched.core.histogram import LARGEST_US, Histogram

values = st.one_of(st.integers(0, 100), st.integers(0, 1_000_000), st.integers(0, LARGEST_US))  # µs
lists = st.lists(values, min_size=1, max_size=200)


def observed(values_us: list[int]) -> Histogram:
    histogram = Histogram()
    histogram.observe_many(values_us)
    return histogram


@given(lists, st.floats(0, 1))
def test_a_quantile_is_that_of_the_sorted_list_within_its_precision(
    values_us: list[int], share: float
) -> None:
    exact_us = sorted(values_us)[max(ceil(share * len(values_us)), 1) - 1]
    assert exact_us <= observed(values_us).quantile(share) <= exact_us + exact_us // 32


@given(lists)
def test_count_sum_and_largest_are_exact(values_us: list[int]) -> None:
    histogram = observed(values_us)
    assert histogram.count == len(values_us)
    assert histogram.sum_us == sum(values_us)
    assert histogram.max_us == histogram.quantile(1) == max(values_us)


@given(lists, lists)
def test_merged_is_observed_together(some_us: list[int], others_us: list[int]) -> None:
    merged = observed(some_us)
    merged.merge(observed(others_us))
    assert merged == observed(some_us + others_us)


@given(lists, st.lists(values, max_size=20))
def test_a_bound_includes_what_the_sorted_list_has_up_to_it(
    values_us: list[int], bounds_us: list[int]
) -> None:
    for bound_us, count in zip(bounds_us, observed(values_us).counts_up_to(bounds_us), strict=True):
        certain_us = bound_us - bound_us // 32
        assert sum(each < certain_us for each in values_us) <= count
        assert count <= sum(each <= bound_us for each in values_us)
