"""Converts a response to the outcome of each run of its request.

Invariant: there is one outcome for each run, in order, whatever the worker responded.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from msgspec import Struct

from wheelsched.core.outcome import MAX_ERROR_LENGTH, Outcome, TransportFailure, classify, reported
from wheelsched.core.targets.sensitive import mask_values
from wheelsched.core.targets.target import DEFAULT_PORTS
from wheelsched.delivery.http.route import HttpRoute
from wheelsched.ports import Prepared
from wheelsched.wire.callback import BatchAnswer, read_answers

NO_ARRAY = "the worker's response is not an array of {run_id, ok}"
TOO_LONG = "the worker's response is too long"
NOT_NAMED = "the worker's response does not contain this run"
NOT_FOLLOWED = "redirects are not followed"

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class Answer(Struct, frozen=True, kw_only=True, gc=False):
    """An HTTP response, or a transport failure."""

    status: int | TransportFailure
    body: bytes = b""  # up to the limit
    is_whole: bool = True
    retry_after: str | None = None
    location: str | None = None
    detail: str = ""  # of a failure


def judge(
    route: HttpRoute, batch: Sequence[Prepared], answer: Answer, now_us: int
) -> list[Outcome]:
    """The outcome of each callback of a batch."""
    status = answer.status
    if isinstance(status, int) and 200 <= status <= 299:
        if route.batch > 1 and status != 202:
            return _judge_each(route, batch, answer, status)
        detail = ""
    else:
        detail = mask_values(_explain(route.target.url, answer), route.target.headers)
    outcome = classify(status, now_us=now_us, retry_after=answer.retry_after, detail=detail)
    return [outcome] * len(batch)


def _explain(target_url: str, answer: Answer) -> str:
    """The detail of a response that is not a success."""
    if answer.status not in REDIRECTS:
        return answer.detail or _beginning(answer.body)
    moved_url = _by_trailing_slash(target_url, answer.location or "")
    if moved_url is None:
        return NOT_FOLLOWED
    return f"{NOT_FOLLOWED}; the target redirects to {moved_url}: register that URL"


def _by_trailing_slash(target_url: str, location: str) -> str | None:
    """The URL to use instead, if a redirect only adds or removes a trailing slash.

    Web frameworks redirect like this if a route is defined the other way.
    """
    try:
        target = urlsplit(target_url)
        moved = urlsplit(urljoin(target_url, location))
        if _without_path(moved) != _without_path(target):
            return None
    except ValueError:  # not a URL
        return None
    path = target.path or "/"
    if f"{path}/" != moved.path and f"{moved.path}/" != path:
        return None
    return target._replace(path=moved.path).geturl()


def _without_path(url: SplitResult) -> tuple[object, ...]:
    return url.scheme, url.hostname, url.port or DEFAULT_PORTS.get(url.scheme), url.query


def _beginning(body: bytes) -> str:
    return body[:MAX_ERROR_LENGTH].decode("utf-8", "replace").strip()


def _judge_each(
    route: HttpRoute, batch: Sequence[Prepared], answer: Answer, status: int
) -> list[Outcome]:
    answers = read_answers(answer.body) if answer.is_whole else None
    if answers is None:
        error = NO_ARRAY if answer.is_whole else TOO_LONG
        return [reported(ok=False, error=error, http_status=status)] * len(batch)
    succeeded = reported(ok=True, http_status=status)  # shared, because most runs succeed
    named = [answers.get(prepared.run_id) for prepared in batch]
    return [
        succeeded if answer is not None and answer.ok else _judge_failure(route, answer, status)
        for answer in named
    ]


def _judge_failure(route: HttpRoute, answer: BatchAnswer | None, status: int) -> Outcome:
    if answer is None:
        return reported(ok=False, error=NOT_NAMED, http_status=status)
    return reported(
        ok=False,
        error=mask_values(answer.error or "", route.target.headers),
        retry=answer.retry is not False,
        http_status=HTTPStatus.TOO_EARLY if answer.too_early else status,
    )
