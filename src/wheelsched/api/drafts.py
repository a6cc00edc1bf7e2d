"""Drafts: jobs that applications wrote in transactions of their own, judged and shown.

Invariant: a draft is judged as a request to the API would have been at the time when it was
written; and it can be shown whatever is wrong with it.
"""

from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from wheelsched.api.intake import Intake
from wheelsched.api.judging import NO_JITTER
from wheelsched.core.duration import format_duration
from wheelsched.core.egress import EgressRules
from wheelsched.core.model import DEFAULT_IDEMPOTENCY_KEY, Draft
from wheelsched.core.policy import DEFAULT_TIMEOUT_US
from wheelsched.core.sensitive import mask_headers, mask_user_info
from wheelsched.ports import Registration
from wheelsched.wire.instant import instant
from wheelsched.wire.job import (
    DstDocument,
    JobAnswer,
    MisfireDocument,
    OverlapDocument,
    RetryDocument,
    TargetDocument,
)

_NULL: Final = Raw(b"null")

Kind = TypeVar("Kind")


def judge_draft(draft: Draft, rules: EgressRules) -> Registration:
    """The job of a draft and its first due time, or what is wrong with it."""
    intake = Intake(draft.created_at_us, rules)
    return intake.register_written(bytes(draft.document), draft.job_id, draft.tenant_id)


def draft_answer(draft: Draft) -> JobAnswer:
    """A draft as it goes over the wire: each field as it was written, if it can be read."""
    written = _Written(draft.document)
    return JobAnswer(
        job_id=draft.job_id,
        name=draft.name,
        state=draft.state,
        error=draft.error,
        schedule=written.raw("schedule"),
        timezone=written.read("timezone", str, "UTC"),
        target=_masked(written.read("target", TargetDocument, TargetDocument(url=""))),
        payload=written.raw("payload"),
        misfire=written.read("misfire", MisfireDocument, MisfireDocument()),
        overlap=written.read("overlap", OverlapDocument, OverlapDocument()),
        retry=written.read("retry", RetryDocument, RetryDocument()),
        timeout=written.read("timeout", str, format_duration(DEFAULT_TIMEOUT_US)),
        jitter=written.read("jitter", str, NO_JITTER),
        priority=written.read("priority", int, 0),
        dst=written.read("dst", DstDocument, DstDocument()),
        idempotency_key=written.read("idempotency_key", str, DEFAULT_IDEMPOTENCY_KEY),
        tags=written.read("tags", dict[str, str], {}),
        version=draft.version,
        created_at=instant(draft.created_at_us),
        updated_at=instant(draft.updated_at_us),
        paused_at=None,
        next_run_at=None,
    )


def _masked(target: TargetDocument) -> TargetDocument:
    """A target as readers see it: nobody has refused a URL with a password in it yet."""
    headers = target.headers and mask_headers(target.headers)
    return replace(target, url=mask_user_info(target.url), headers=headers)


class _Written:
    """The fields of a document of which nobody knows whether they are right."""

    def __init__(self, document: Raw) -> None:
        self._fields: dict[str, Raw] = {}
        with suppress(RecursionError):  # nested deeper than anybody reads: nothing of it is shown
            self._fields = msgspec.json.decode(document, type=dict[str, Raw])

    def raw(self, name: str) -> Raw:
        return self._fields.get(name, _NULL)

    def read(self, name: str, kind: Any, default: Kind) -> Kind:
        try:
            found: Kind | None = msgspec.json.decode(self.raw(name), type=kind | None)
        except msgspec.DecodeError:
            return default
        return default if found is None else found
