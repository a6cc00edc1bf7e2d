"""Targets of documents: judged by the core, with the rules of this installation.

Invariant: no job is registered for an address that its shard would refuse to reach, as far as the
address is written out. Where a name leads is decided at each connection.
"""

from typing import Final

from wheelsched.api.problem_list import ProblemList
from wheelsched.core.egress import EgressRules
from wheelsched.core.fields import shown
from wheelsched.core.model import Target
from wheelsched.core.target import check_headers, check_method, check_url
from wheelsched.errors import FieldOutOfRange
from wheelsched.wire.job import TargetDocument

MAX_BATCH: Final = 1_000


def judge_target(written: TargetDocument, rules: EgressRules) -> Target:
    """The target of a document, or `InvalidDocument`."""
    problems = ProblemList()
    method = "POST" if written.method is None else written.method
    problems.note(check_url, written.url, rules)
    problems.note(check_method, method)
    problems.note(check_headers, written.headers or {})
    target = Target(
        url=written.url,
        method=method,
        headers=written.headers or {},
        batch=problems.note(_check_batch, 1 if written.batch is None else written.batch),
    )
    problems.raise_all()
    return target


def _check_batch(batch: int) -> int:
    if not 1 <= batch <= MAX_BATCH:
        raise FieldOutOfRange(
            f"{shown(batch)} is out of range; 1 to {MAX_BATCH:,} is right", pointer="/target/batch"
        )
    return batch
