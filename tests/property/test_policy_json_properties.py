from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from wheelsched.core.policies.policy import (
    Backoff,
    MisfirePolicy,
    OnMisfire,
    OnOverlap,
    OverlapPolicy,
    RetryPolicy,
)
from wheelsched.core.policies.policy_json import Policies, read_policies, write_policies
from wheelsched.errors import InvalidDocument
from wheelsched.values.duration import DAY, MILLISECOND


@st.composite
def valid_policies(draw: st.DrawFn) -> Policies:
    grace_us = draw(st.integers(0, DAY))
    initial_us = draw(st.integers(MILLISECOND, DAY))
    overlap = draw(st.sampled_from(OnOverlap))
    most = 1 if overlap is OnOverlap.SKIP else 1_000
    return Policies(
        misfire=MisfirePolicy(
            policy=draw(st.sampled_from(OnMisfire)),
            grace_us=grace_us,
            window_us=draw(st.integers(grace_us, 30 * DAY)),
            max_missed=draw(st.integers(1, 1_000)),
        ),
        overlap=OverlapPolicy(
            policy=overlap, max_concurrent=draw(st.none() | st.integers(1, most))
        ),
        retry=RetryPolicy(
            max_attempts=draw(st.integers(1, 100)),
            backoff=draw(st.sampled_from(Backoff)),
            initial_us=initial_us,
            max_us=draw(st.integers(initial_us, DAY)),
        ),
        timeout_us=draw(st.integers(10 * MILLISECOND, DAY)),
        priority=draw(st.integers(-100, 100)),
    )


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
names = st.sampled_from(
    ["policy", "grace", "window", "max_missed", "max_concurrent", "max_attempts", "initial", "max"]
)
documents = st.dictionaries(
    st.sampled_from(["misfire", "overlap", "retry", "timeout", "priority", "other"]),
    st.dictionaries(names | st.text(), values) | values,
)


@given(valid_policies())
def test_a_formatted_value_is_parsed_back(policies: Policies) -> None:
    assert read_policies(write_policies(policies)) == policies


@given(documents)
def test_any_document_is_read_or_refused_with_pointers(document: dict[str, object]) -> None:
    with suppress(InvalidDocument):
        policies = read_policies(document)
        assert read_policies(write_policies(policies)) == policies
