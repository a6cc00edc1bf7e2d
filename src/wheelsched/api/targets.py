"""Targets of documents: judged by the core, with the rules of this installation.

Invariant: no job is registered for an address that its shard would refuse to reach, as far as the
address is written out. Where a name leads is decided at each connection.
"""

from msgspec.structs import replace

from wheelsched.core.egress import EgressRules
from wheelsched.core.fields import escaped, shown
from wheelsched.core.model import Target
from wheelsched.core.problem_list import ProblemList
from wheelsched.core.sensitive import MASK, masked_names, restore_headers
from wheelsched.core.target import (
    HEADERS_POINTER,
    check_headers,
    check_method,
    check_url,
    is_same_origin,
)
from wheelsched.errors import FieldOutOfRange, InvalidDocument, InvalidHeader
from wheelsched.wire.job import MAX_BATCH, TargetDocument


def judge_target(written: TargetDocument, rules: EgressRules) -> Target:
    """The target of a document, or `InvalidDocument`."""
    problems = ProblemList()
    method = "POST" if written.method is None else written.method
    problems.note(check_url, written.url, rules)
    problems.note(check_method, method)
    problems.note(check_headers, written.headers or {})
    problems.note(_refuse_masks, written.headers or {})
    target = Target(
        url=written.url,
        method=method,
        headers=written.headers or {},
        batch=problems.note(_check_batch, 1 if written.batch is None else written.batch),
    )
    problems.raise_all()
    return target


def keep_hidden(written: TargetDocument, stored: Target) -> TargetDocument:
    """The target with each mask replaced by the stored value of its header.

    Not for another origin: whoever may write a job could have its credentials sent anywhere.
    """
    if not is_same_origin(written.url, stored.url):
        return written
    return replace(written, headers=restore_headers(written.headers or {}, stored.headers))


def _refuse_masks(headers: dict[str, str]) -> None:
    """Refuse masks that stand for nothing: what they hide was not stored, or is of another job."""
    refused = [
        InvalidHeader(
            f"'{MASK}' stands for the stored value of this header, and none is stored for this "
            "origin; write the value itself",
            pointer=f"{HEADERS_POINTER}/{escaped(name)}",
        )
        for name in masked_names(headers)
    ]
    if refused:
        raise InvalidDocument(errors=tuple(refused))


def _check_batch(batch: int) -> int:
    if not 1 <= batch <= MAX_BATCH:
        raise FieldOutOfRange(
            f"{shown(batch)} is out of range; 1 to {MAX_BATCH:,} is right", pointer="/target/batch"
        )
    return batch
