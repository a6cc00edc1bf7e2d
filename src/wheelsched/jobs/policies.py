"""The policies of a job document, read into what the core decides by, and written back.

Jobs differ more than their policies do: a tenant has a few, and reading them is expensive. So what
was read or written is cached.
"""

from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import convert

from wheelsched.core.policies.policy import MisfirePolicy, OverlapPolicy, RetryPolicy
from wheelsched.core.policies.policy_json import (
    POLICY_FIELDS,
    Policies,
    read_policies,
    write_policies,
)
from wheelsched.values.duration import format_duration
from wheelsched.wire.job import JobDocument, MisfireDocument, OverlapDocument, RetryDocument

_NAMES: Final = tuple(sorted(POLICY_FIELDS))
_values_of: Final = attrgetter(*_NAMES)
_cached = lru_cache(maxsize=1_024)


def parse_policies(document: JobDocument) -> Policies:
    """The policies of a document, or `InvalidDocument`."""
    return _parse(_values_of(document))


@_cached
def _parse(values: tuple[object, ...]) -> Policies:
    return read_policies(msgspec.to_builtins(dict(zip(_NAMES, values, strict=True))))


def normalize_policy(name: str, value: Any) -> Any:
    """One policy field with every default and one spelling per duration, or `InvalidDocument`."""
    policies = read_policies({name: msgspec.to_builtins(value)})
    return convert(dict(write_policies(policies))[name], type(value))


@_cached
def describe_misfire(misfire: MisfirePolicy) -> MisfireDocument:
    """A misfire policy as its user writes it."""
    return convert(write_policies(Policies(misfire=misfire))["misfire"], MisfireDocument)


@_cached
def describe_overlap(overlap: OverlapPolicy) -> OverlapDocument:
    """An overlap policy as its user writes it."""
    return convert(write_policies(Policies(overlap=overlap))["overlap"], OverlapDocument)


@_cached
def describe_retry(retry: RetryPolicy) -> RetryDocument:
    """A retry policy as its user writes it."""
    return convert(write_policies(Policies(retry=retry))["retry"], RetryDocument)


@_cached
def describe_duration(duration_us: int) -> str:
    """A duration as its user writes it."""
    return format_duration(duration_us)
