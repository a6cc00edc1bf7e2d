"""Drafts: jobs that applications scheduled in their own SQL transactions.

Invariant: a draft is validated like a request to the API that came when the draft was written. It
can be shown, whatever is wrong with it.
"""

from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import fields, replace

from wheelsched.core.model import Draft
from wheelsched.core.targets.egress import EgressRules
from wheelsched.core.targets.sensitive import mask_user_info
from wheelsched.jobs.fields import FIELDS
from wheelsched.jobs.parse import JobParser
from wheelsched.jobs.targets import mask_target
from wheelsched.ports import Registration
from wheelsched.wire.instant import instant
from wheelsched.wire.job import JobAnswer, JobDocument, TargetDocument

_NO_TARGET: Final = TargetDocument(url="")
_NULL: Final = Raw(b"null")
_DECODERS: Final = {each.name: msgspec.json.Decoder(each.type) for each in fields(JobDocument)}


def judge_draft(draft: Draft, rules: EgressRules) -> Registration:
    """The job of a draft and its first due time, or `InvalidDocument`."""
    parser = JobParser(draft.created_at_us, rules)
    return parser.register_json(bytes(draft.document), draft.job_id, draft.tenant_id)


def draft_answer(draft: Draft) -> JobAnswer:
    """A draft as the API answers it: each field as it was written, or its default."""
    document = _readable_fields(draft.document)
    document["name"] = draft.name
    document["target"] = _masked(document["target"] or _NO_TARGET)
    return JobAnswer(
        job_id=draft.job_id,
        state=draft.state,
        error=draft.error,
        version=draft.version,
        created_at=instant(draft.created_at_us),
        updated_at=instant(draft.updated_at_us),
        paused_at=None,
        next_run_at=None,
        **document,
    )


def _masked(target: TargetDocument) -> TargetDocument:
    """A target as readers see it. Its URL may still contain a password: it is not validated."""
    target = mask_target(target)
    return target if target.url is None else replace(target, url=mask_user_info(target.url))


def _readable_fields(document: Raw) -> dict[str, Any]:
    """The fields of a document that nothing has validated; a default for each unreadable one."""
    fields: dict[str, Raw] = {}
    with suppress(RecursionError):  # nested too deeply to be read: only defaults are shown
        fields = msgspec.json.decode(document, type=dict[str, Raw])
    return {
        name: _read(fields.get(name, _NULL), decoder, FIELDS[name].default)
        for name, decoder in _DECODERS.items()
    }


def _read(value: Raw, decoder: msgspec.json.Decoder[Any], default: Any) -> Any:
    try:
        found = decoder.decode(value)
    except msgspec.DecodeError:
        return default
    return default if found is None else found
