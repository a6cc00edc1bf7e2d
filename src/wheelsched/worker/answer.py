"""Converts outcomes to HTTP responses.

Invariant: the dispatcher converts a response back to the same outcome (`core.outcome.classify`, and
`reported` for one run of a batch), as far as the format of a batch can express it.
"""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final, assert_never

from msgspec import Struct

from wheelsched.core.outcome import Accepted, Failed, Gone, Outcome, Rejected, Succeeded
from wheelsched.values.duration import SECOND
from wheelsched.wire.callback import BatchAnswer, encode_answers

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


class Answer(Struct, frozen=True, kw_only=True):
    """An HTTP response, independent of the web framework."""

    status: int
    body: bytes = b""
    content_type: str = TEXT
    retry_after_s: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        headers = {"content-type": self.content_type, "content-length": str(len(self.body))}
        if self.retry_after_s is not None:
            headers["retry-after"] = str(self.retry_after_s)
        return headers


def write_answer(outcome: Outcome) -> Answer:
    """The response to a request with one run."""
    match outcome:
        case Succeeded():
            return Answer(status=HTTPStatus.OK)
        case Accepted():
            return Answer(status=HTTPStatus.ACCEPTED)
        case Failed():
            retry_after_us = outcome.retry_after_us
            return Answer(
                status=outcome.http_status or HTTPStatus.INTERNAL_SERVER_ERROR,
                body=_text(outcome.error),
                # Whole seconds, rounded up.
                retry_after_s=None if retry_after_us is None else -(-retry_after_us // SECOND),
            )
        case Rejected():
            return Answer(status=HTTPStatus.UNPROCESSABLE_ENTITY, body=_text(outcome.error))
        case Gone():
            return Answer(status=HTTPStatus.GONE, body=_text(outcome.error))
        case never:
            assert_never(never)


def write_answers(outcomes: Iterable[tuple[str, Outcome]]) -> Answer:
    """The response to a request with several runs, each with its outcome."""
    answers = [_write_element(run_id, outcome) for run_id, outcome in outcomes]
    return Answer(status=HTTPStatus.OK, body=encode_answers(answers), content_type=JSON)


def refuse(status: int, error: str, retry_after_s: int | None = None) -> Answer:
    """The response to a request that is not a callback, or that cannot be served now."""
    return Answer(status=status, body=_text(error), retry_after_s=retry_after_s)


def _write_element(run_id: str, outcome: Outcome) -> BatchAnswer:
    match outcome:
        case Succeeded():
            return BatchAnswer(run_id=run_id, ok=True)
        case Failed():
            too_early = outcome.is_too_early or None
            return BatchAnswer(run_id=run_id, ok=False, error=outcome.error, too_early=too_early)
        case Rejected() | Gone():
            return BatchAnswer(run_id=run_id, ok=False, error=outcome.error, retry=False)
        case Accepted():
            raise AssertionError("a run of a batch cannot be accepted")
        case never:
            assert_never(never)


def _text(error: str) -> bytes:
    return error.encode("utf-8", "replace")
