"""The targets of job documents: parsed, validated with the installation's egress rules, described.

Invariant: no job is registered for an address that its shard would refuse to connect to, as far as
the URL contains the address. Host names are resolved and checked at each connection.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import asdict, replace

from wheelsched.core.model import HttpTarget, QueueTarget, Target
from wheelsched.core.targets.egress import EgressRules
from wheelsched.core.targets.queue import (
    CLAIM_WITHIN_POINTER,
    QUEUE_POINTER,
    check_claim_within,
    check_queue,
)
from wheelsched.core.targets.sensitive import MASK, mask_headers, masked_names, restore_headers
from wheelsched.core.targets.target import (
    HEADERS_POINTER,
    URL_POINTER,
    check_headers,
    check_method,
    check_url,
    is_same_origin,
)
from wheelsched.errors import (
    FieldOutOfRange,
    InvalidDocument,
    InvalidField,
    InvalidHeader,
    WrongType,
)
from wheelsched.values.duration import format_duration, parse_duration
from wheelsched.values.fields import display_value, escape_pointer
from wheelsched.values.problem_list import ProblemList
from wheelsched.wire.job import MAX_BATCH, TargetDocument

_HTTP_ONLY: Final = ("method", "headers", "batch")


def parse_target(document: TargetDocument, rules: EgressRules) -> Target:
    """The target of a document, or `InvalidDocument`."""
    problems = ProblemList()
    problems.note(_check_kind, document)
    if document.url is not None:
        problems.note(check_url, document.url, rules)
    if document.method is not None:
        problems.note(check_method, document.method)
    if document.headers is not None:
        problems.note(check_headers, document.headers)
        problems.note(_refuse_masks, document.headers)
    if document.batch is not None:
        problems.note(_check_batch, document.batch)
    if document.queue is not None:
        problems.note(check_queue, document.queue)
    if document.claim_within is not None:
        problems.note(_check_claim_within, document.claim_within)
    problems.raise_all()
    return _with_defaults(document)


def _check_kind(document: TargetDocument) -> None:
    """Refuse a target that is neither a URL nor a queue, or fields of both."""
    is_http = any(getattr(document, name) is not None for name in _HTTP_ONLY)
    if document.url is not None and document.queue is not None:
        raise InvalidField(
            "a target has either a 'url' to call or a 'queue' from which workers take "
            "runs; remove one of them",
            pointer=QUEUE_POINTER,
        )
    if document.queue is not None:
        _refuse_other(document, _HTTP_ONLY, "a 'url'")
    elif document.url is not None:
        _refuse_other(document, ("claim_within",), "a 'queue'")
    elif is_http:
        raise WrongType("this field is required", pointer=URL_POINTER)
    else:
        raise WrongType(
            "a target needs a 'url' to call, or a 'queue' from which workers take runs",
            pointer="/target",
        )


def _refuse_other(document: TargetDocument, names: Sequence[str], what: str) -> None:
    refused = [
        InvalidField(f"this field is only for targets with {what}", pointer=f"/target/{name}")
        for name in names
        if getattr(document, name) is not None
    ]
    if refused:
        raise InvalidDocument(errors=tuple(refused))


def describe_target(target: Target) -> TargetDocument:
    """The target as its user writes it, with every default and with its credentials."""
    if isinstance(target, HttpTarget):
        return TargetDocument(
            url=target.url, method=target.method, headers=target.headers, batch=target.batch
        )
    return TargetDocument(queue=target.queue, claim_within=format_duration(target.claim_within_us))


def mask_target(document: TargetDocument) -> TargetDocument:
    """The target with the values of its sensitive headers masked, as readers see it."""
    if not document.headers:
        return document
    return replace(document, headers=mask_headers(document.headers))


def normalize_target(document: TargetDocument) -> TargetDocument:
    """The target with every default written out. Only its kind is validated."""
    _check_kind(document)
    return describe_target(_with_defaults(document))


def _with_defaults(document: TargetDocument) -> Target:
    given = {name: value for name, value in asdict(document).items() if value is not None}
    if document.queue is None:
        return HttpTarget(**given)
    if document.claim_within is not None:
        given["claim_within_us"] = parse_duration(
            given.pop("claim_within"), pointer=CLAIM_WITHIN_POINTER
        )
    return QueueTarget(**given)


def restore_masked(document: TargetDocument, stored: Target) -> TargetDocument:
    """The target with each mask replaced by the stored value of its header.

    Only for the same origin: otherwise a user who may edit a job could have its credentials sent to
    any host.
    """
    if document.url is None or not isinstance(stored, HttpTarget):
        return document
    if not is_same_origin(document.url, stored.url):
        return document
    return replace(document, headers=restore_headers(document.headers or {}, stored.headers))


def headers_of(target: Target) -> dict[str, str]:
    """The headers of a target; a queue has none."""
    return target.headers if isinstance(target, HttpTarget) else {}


def _refuse_masks(headers: dict[str, str]) -> None:
    """Refuse masks for which no value is stored: the header is new, or of another origin."""
    refused = [
        InvalidHeader(
            f"'{MASK}' stands for the stored value of this header, but none is stored for this "
            "origin; send the value itself",
            pointer=f"{HEADERS_POINTER}/{escape_pointer(name)}",
        )
        for name in masked_names(headers)
    ]
    if refused:
        raise InvalidDocument(errors=tuple(refused))


def _check_batch(batch: int) -> None:
    if not 1 <= batch <= MAX_BATCH:
        raise FieldOutOfRange(
            f"{display_value(batch)} is out of range; expected 1 to {MAX_BATCH:,}",
            pointer="/target/batch",
        )


def _check_claim_within(text: str) -> None:
    check_claim_within(parse_duration(text, pointer=CLAIM_WITHIN_POINTER))
