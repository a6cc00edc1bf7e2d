import msgspec
import pytest

from wheelsched.core.outcome import (
    MAX_ERROR_LENGTH,
    Accepted,
    Failed,
    Gone,
    Outcome,
    Rejected,
    Succeeded,
    TransportFailure,
    classify,
    parse_retry_after,
    reported,
)
from wheelsched.values.duration import MAX_DURATION_US, SECOND

NOW_US = 784_111_777 * SECOND  # Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110


def classified(answer: int | TransportFailure, retry_after: str | None = None) -> Outcome:
    return classify(answer, now_us=NOW_US, retry_after=retry_after)


@pytest.mark.parametrize("status", [200, 201, 203, 204, 206, 299])
def test_2xx_is_succeeded(status: int) -> None:
    assert classified(status) == Succeeded(http_status=status)


def test_202_is_accepted() -> None:
    assert classified(202) == Accepted(http_status=202)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 501, 502, 503, 504, 511, 599])
def test_408_425_429_and_5xx_are_failed_and_may_be_retried(status: int) -> None:
    outcome = classified(status)
    assert isinstance(outcome, Failed)
    assert outcome.http_status == status


def test_410_is_gone() -> None:
    outcome = classified(410)
    assert isinstance(outcome, Gone)
    assert outcome.http_status == 410


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_never_followed_and_kills_the_run(status: int) -> None:
    assert isinstance(classified(status), Rejected)


@pytest.mark.parametrize("status", [100, 199, 300, 400, 401, 403, 404, 409, 422, 451, 600, 999, 0])
def test_any_other_status_kills_the_run_at_once(status: int) -> None:
    outcome = classified(status)
    assert isinstance(outcome, Rejected)
    assert outcome.http_status == status


@pytest.mark.parametrize(
    "failure", sorted(set(TransportFailure) - {TransportFailure.FORBIDDEN_ADDRESS})
)
def test_no_connection_and_timeout_are_failed_and_may_be_retried(failure: TransportFailure) -> None:
    assert classified(failure) == Failed(error=failure.value)


def test_an_address_that_is_not_allowed_kills_the_run_at_once() -> None:
    outcome = classified(TransportFailure.FORBIDDEN_ADDRESS)
    assert outcome == Rejected(error="the target's address is not allowed")


def test_every_status_has_exactly_one_outcome() -> None:
    retried = {status for status in range(1_000) if isinstance(classified(status), Failed)}
    assert retried == {408, 425, 429} | set(range(500, 600))


def test_the_error_contains_the_worker_response() -> None:
    outcome = classify(503, now_us=NOW_US, detail="database is away")
    assert isinstance(outcome, Failed)
    assert outcome.error == "the worker responded with 503 Service Unavailable: database is away"
    unknown = classified(599)
    assert isinstance(unknown, Failed)
    assert unknown.error == "the worker responded with 599"


def test_the_error_can_be_kept_by_any_store() -> None:
    outcome = classify(500, now_us=NOW_US, detail="\x00\ud800" + "x" * 1_000_000)
    assert isinstance(outcome, Failed)
    assert len(outcome.error) == MAX_ERROR_LENGTH
    assert "\x00" not in outcome.error
    outcome.error.encode()


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_comes_with_the_failure(status: int) -> None:
    outcome = classified(status, retry_after="120")
    assert isinstance(outcome, Failed)
    assert outcome.retry_after_us == 120 * SECOND


@pytest.mark.parametrize(
    ("value", "wait_us"),
    [
        ("0", 0),
        (" 120 ", 120 * SECOND),
        ("9" * 12, MAX_DURATION_US),
        ("9" * 100_000, MAX_DURATION_US),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60 * SECOND),
        ("Sunday, 06-Nov-94 08:50:37 GMT", 60 * SECOND),
        ("Sun Nov  6 08:50:37 1994", 60 * SECOND),
        ("Sun, 06 Nov 1994 08:50:37 -0000", 60 * SECOND),
        ("Sun, 06 Nov 1994 09:50:37 +0100", 60 * SECOND),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, wait_us: int) -> None:
    assert parse_retry_after(value, NOW_US) == wait_us


@pytest.mark.parametrize(
    "value",
    ["", "soon", "-1", "+5", "1.5", "١", "Sun, 06 Foo 1994 08:49:37 GMT",
     "Sun, 99 Nov 1994 08:49:37 GMT", "Mon, 01 Jan 99999 00:00:00 GMT", "\x00", "x" * 1_000_000],
)  # fmt: skip
def test_an_invalid_retry_after_is_ignored(value: str) -> None:
    assert parse_retry_after(value, NOW_US) is None


def test_an_outcome_is_stored_under_its_name() -> None:
    stored = msgspec.json.encode(Failed(error="503", http_status=503))
    assert stored == b'{"type":"failed","error":"503","http_status":503,"retry_after_us":null}'


def test_a_worker_reports_success_failure_or_refusal_itself() -> None:
    assert reported(ok=True) == Succeeded()
    assert reported(ok=False) == Failed(error="the worker reported a failure")
    assert reported(ok=False, error="full disk") == Failed(error="full disk")
    assert reported(ok=False, error="no such report", retry=False) == Rejected(
        error="no such report"
    )
