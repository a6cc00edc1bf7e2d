"""Validates job documents. Parts that the documents of one request share are validated once.

Invariant: a document that reuses the results of an earlier one gets the same results as if it were
validated alone.

| documents that differ in | share |
|---|---|
| name, payload and tags | everything that is validated here, and the first due time |
| their schedule too | policies and target |
| the time of a one-off | everything but that time |
"""

from typing import Any, Final
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from wheelsched.core.idempotency import check_template
from wheelsched.core.model import Target
from wheelsched.core.policies.policy_json import Policies
from wheelsched.core.targets.egress import EgressRules
from wheelsched.jobs.fields import dst_rules, field_of, shared_key
from wheelsched.jobs.policies import parse_policies
from wheelsched.jobs.targets import parse_target
from wheelsched.schedule.cron import expression as cron
from wheelsched.schedule.parse import first_due_us, one_off_like, parse
from wheelsched.schedule.satisfiable import check_jitter
from wheelsched.schedule.spec import Spec
from wheelsched.values.duration import parse_duration
from wheelsched.values.problem_list import ProblemList
from wheelsched.wire.job import JobDocument

_ANY_ID: Final = UUID(int=0)

Key = tuple[object, ...]


class Validated(Struct, frozen=True):
    """The fields of a job that were validated, and its first due time.

    The due time is None if it depends on the id of the job.
    """

    fields: dict[str, Any]
    due_us: int | None


class _PoliciesAndTarget(Struct, frozen=True):
    policies: Policies
    target: Target


class JobValidation:
    """Validates the documents of one request."""

    def __init__(self, now_us: int, rules: EgressRules) -> None:
        self._now_us = now_us
        self._rules = rules
        self._validated: dict[tuple[bytes, Key], Validated] = {}
        self._policies_and_targets: dict[Key, _PoliciesAndTarget] = {}
        self._one_offs: dict[Key, Validated] = {}

    def validate_new(self, document: JobDocument) -> Validated:
        """The fields and the first due time of a new job, or `InvalidDocument`."""
        shared = shared_key(document)
        key = bytes(document.schedule), shared
        validated = self._validated.get(key)
        if validated is not None:
            return validated
        if shared in self._one_offs and (similar := self._validate_one_off(document, shared)):
            return similar
        fields = self._validate(document, shared, None)
        due_us = self._common_due_us(fields["spec"], fields["misfire"].grace_us)
        validated = self._validated[key] = Validated(fields, due_us)
        if fields["spec"].kind == "at":
            self._one_offs[shared] = validated
        return validated

    def validate_edited(self, document: JobDocument, spec: Spec | None) -> dict[str, Any]:
        """The fields of an edited job. Pass its spec if its schedule is unchanged."""
        return self._validate(document, shared_key(document), spec)

    def _validate_one_off(self, document: JobDocument, shared: Key) -> Validated | None:
        """A one-off that differs from an earlier one by its time alone, as in an import."""
        text = msgspec.json.decode(document.schedule)
        fields = self._one_offs[shared].fields
        found = isinstance(text, str) and one_off_like(text, fields["spec"], now_us=self._now_us)
        return Validated(fields | {"spec": found[0]}, found[1]) if found else None

    def _common_due_us(self, spec: Spec, grace_us: int) -> int | None:
        """The first due time, or None if it depends on the id of the job."""
        if spec.kind == "cron" and cron.is_hashed(cron.template(spec.expression)):
            return None
        return first_due_us(spec, _ANY_ID, now_us=self._now_us, grace_us=grace_us)

    def _validate(self, document: JobDocument, shared: Key, spec: Spec | None) -> dict[str, Any]:
        problems = ProblemList()
        note = problems.note
        found = note(self._policies_and_target, document, shared)
        if spec is None:
            spec = note(self._parse_schedule, document, found)
        else:
            spec = note(_with_jitter, spec, field_of(document, "jitter"))
        idempotency_key = field_of(document, "idempotency_key")
        note(_check_key, idempotency_key, spec)
        problems.raise_all()
        policies = found.policies
        return {
            "spec": spec,
            "target": found.target,
            "misfire": policies.misfire,
            "overlap": policies.overlap,
            "retry": policies.retry,
            "timeout_us": policies.timeout_us,
            "priority": policies.priority,
            "idempotency_key": idempotency_key,
        }

    def _policies_and_target(self, document: JobDocument, shared: Key) -> _PoliciesAndTarget:
        found = self._policies_and_targets.get(shared)
        if found is None:
            problems = ProblemList()
            policies = problems.note(parse_policies, document)
            target = problems.note(parse_target, document.target, self._rules)
            problems.raise_all()
            found = self._policies_and_targets[shared] = _PoliciesAndTarget(policies, target)
        return found

    def _parse_schedule(self, document: JobDocument, found: _PoliciesAndTarget | None) -> Spec:
        timezone, dst_gap, dst_overlap = zone_of(document)
        return parse(
            msgspec.json.decode(document.schedule),
            timezone=timezone,
            dst_gap=dst_gap,
            dst_overlap=dst_overlap,
            jitter=field_of(document, "jitter"),
            now_us=self._now_us,
            grace_us=(Policies() if found is None else found.policies).misfire.grace_us,
        )


def zone_of(document: JobDocument) -> tuple[str, str, str]:
    """The time zone of a document, and its rules for times in DST gaps and overlaps."""
    return field_of(document, "timezone"), *dst_rules(field_of(document, "dst"))


def _with_jitter(spec: Spec, jitter: str) -> Spec:
    spec = replace(spec, jitter_us=parse_duration(jitter, pointer="/jitter"))
    check_jitter(spec)
    return spec


def _check_key(template: str, spec: Spec | None) -> None:
    check_template(template, is_recurring=spec is not None and spec.kind != "at")
