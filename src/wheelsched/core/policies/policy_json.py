"""Converts the policies of a job from JSON and back.

Invariant: `read_policies(write_policies(policies)) == policies`. Every policy that is read lies
within the limits below, so the decisions need no checks of their own.
"""

from collections.abc import Mapping
from typing import Final, TypedDict

from msgspec import Struct

from wheelsched.core.policies.policy import (
    DEFAULT_TIMEOUT_US,
    UNLIMITED_CONCURRENCY,
    MisfirePolicy,
    OnOverlap,
    OverlapPolicy,
    RetryPolicy,
)
from wheelsched.errors import FieldOutOfRange
from wheelsched.values.duration import DAY, MILLISECOND, format_duration
from wheelsched.values.fields import Fields

MAX_GRACE_US: Final = DAY
MAX_WINDOW_US: Final = 30 * DAY
MAX_MISSED: Final = 1_000  # one decision creates this many runs at most
MAX_ATTEMPTS: Final = 100
MAX_WAIT_US: Final = DAY
MIN_TIMEOUT_US: Final = 10 * MILLISECOND
MAX_TIMEOUT_US: Final = DAY
MAX_PRIORITY: Final = 100

POLICY_FIELDS: Final = frozenset({"misfire", "overlap", "retry", "timeout", "priority"})


class Policies(Struct, frozen=True, kw_only=True):
    """All policies of a job, except its schedule."""

    misfire: MisfirePolicy = MisfirePolicy()
    overlap: OverlapPolicy = OverlapPolicy()
    retry: RetryPolicy = RetryPolicy()
    timeout_us: int = DEFAULT_TIMEOUT_US
    priority: int = 0  # higher runs first, among the runs of one tenant


def read_policies(document: Mapping[str, object]) -> Policies:
    """The policies in the JSON object of a job, or `InvalidDocument` with every problem in them.

    Only `POLICY_FIELDS` are read. The caller checks the rest of the document.
    """
    fields = Fields({name: value for name, value in document.items() if name in POLICY_FIELDS})
    policies = Policies(
        misfire=_read_misfire(fields.nested("misfire")),
        overlap=_read_overlap(fields.nested("overlap")),
        retry=_read_retry(fields.nested("retry")),
        timeout_us=fields.duration(
            "timeout", DEFAULT_TIMEOUT_US, least_us=MIN_TIMEOUT_US, most_us=MAX_TIMEOUT_US
        ),
        priority=fields.integer("priority", 0, least=-MAX_PRIORITY, most=MAX_PRIORITY),
    )
    fields.raise_problems()
    return policies


def _read_misfire(fields: Fields) -> MisfirePolicy:
    default = MisfirePolicy()
    grace_us = fields.duration("grace", default.grace_us, least_us=0, most_us=MAX_GRACE_US)
    policy = MisfirePolicy(
        policy=fields.choice("policy", default.policy),
        grace_us=grace_us,
        window_us=fields.duration(
            "window", max(default.window_us, grace_us), least_us=0, most_us=MAX_WINDOW_US
        ),
        max_missed=fields.integer("max_missed", default.max_missed, least=1, most=MAX_MISSED),
    )
    if policy.window_us < policy.grace_us:
        fields.refuse(
            FieldOutOfRange,
            "window",
            f"the window '{format_duration(policy.window_us)}' is shorter than the grace "
            f"'{format_duration(policy.grace_us)}'; it must be at least as long",
        )
    fields.refuse_unknown()
    return policy


def _read_overlap(fields: Fields) -> OverlapPolicy:
    policy = OverlapPolicy(
        policy=fields.choice("policy", OverlapPolicy().policy),
        max_concurrent=fields.optional_integer(
            "max_concurrent", least=1, most=UNLIMITED_CONCURRENCY
        ),
    )
    if policy.policy is OnOverlap.SKIP and policy.max_concurrent not in {None, 1}:
        fields.refuse(
            FieldOutOfRange,
            "max_concurrent",
            "the policy 'skip' never runs two at once, so max_concurrent must be 1; "
            "use 'queue' or 'allow' for more",
        )
    fields.refuse_unknown()
    return policy


def _read_retry(fields: Fields) -> RetryPolicy:
    default = RetryPolicy()
    initial_us = fields.duration(
        "initial", default.initial_us, least_us=MILLISECOND, most_us=MAX_WAIT_US
    )
    policy = RetryPolicy(
        max_attempts=fields.integer(
            "max_attempts", default.max_attempts, least=1, most=MAX_ATTEMPTS
        ),
        backoff=fields.choice("backoff", default.backoff),
        initial_us=initial_us,
        max_us=fields.duration(
            "max", max(default.max_us, initial_us), least_us=MILLISECOND, most_us=MAX_WAIT_US
        ),
    )
    if policy.max_us < policy.initial_us:
        fields.refuse(
            FieldOutOfRange,
            "max",
            f"the maximum wait '{format_duration(policy.max_us)}' is shorter than the initial wait "
            f"'{format_duration(policy.initial_us)}'; it must be at least as long",
        )
    fields.refuse_unknown()
    return policy


class PolicyDocument(TypedDict):
    """The policy fields of a job's JSON object."""

    misfire: dict[str, object]
    overlap: dict[str, object]
    retry: dict[str, object]
    timeout: str
    priority: int


def write_policies(policies: Policies) -> PolicyDocument:
    """The policies as JSON, with every default filled in."""
    misfire, overlap, retry = policies.misfire, policies.overlap, policies.retry
    return {
        "misfire": {
            "policy": misfire.policy.value,
            "grace": format_duration(misfire.grace_us),
            "window": format_duration(misfire.window_us),
            "max_missed": misfire.max_missed,
        },
        "overlap": {"policy": overlap.policy.value, "max_concurrent": overlap.max_concurrent},
        "retry": {
            "max_attempts": retry.max_attempts,
            "backoff": retry.backoff.value,
            "initial": format_duration(retry.initial_us),
            "max": format_duration(retry.max_us),
        },
        "timeout": format_duration(policies.timeout_us),
        "priority": policies.priority,
    }
