"""The responses of a worker, from request bytes to response bytes."""

import asyncio
import signal

import msgspec
import pytest
from msgspec import Struct
from tests.unit.worker.callbacks import (
    NOW_S,
    OTHER_SECRET,
    batch,
    element,
    make_worker,
    run_id,
    send,
    signed,
    single,
)

from wheelsched.core.outcome import Failed, Gone, Outcome, Rejected, Succeeded, classify
from wheelsched.errors import Gone as GoneForGood
from wheelsched.errors import HandlerTaken, InvalidHandler
from wheelsched.wire.callback import read_answers
from wheelsched.worker import Reject, RetryLater, Run, Worker, WorkerConfig
from wheelsched.worker.answer import Answer


class Report(Struct):
    name: str


def understood(answer: Answer) -> Outcome:
    """The outcome that the dispatcher reads from a response."""
    return classify(
        answer.status,
        now_us=0,
        retry_after=answer.headers.get("retry-after"),
        detail=answer.body.decode(),
    )


def raising(error: BaseException) -> Worker:
    worker = make_worker()

    @worker.job("report")
    async def handle(payload: object) -> None:
        raise error

    return worker


async def test_a_run_that_succeeds_once_is_done() -> None:
    worker = make_worker()
    seen: list[tuple[Report, int]] = []

    @worker.job("report")
    async def handle(payload: Report, run: Run) -> None:
        seen.append((payload, run.attempt))

    first = await send(worker, single(b'{"name": "weekly"}'))
    again = await send(worker, single(b'{"name": "weekly"}', headers={"wheelsched-attempt": "2"}))
    assert understood(first) == understood(again) == Succeeded(http_status=200)
    assert seen == [(Report("weekly"), 1)]


async def test_a_handler_that_raises_is_a_failed_attempt_with_its_message() -> None:
    outcome = understood(await send(raising(ValueError("no paper")), single()))
    assert isinstance(outcome, Failed)
    assert (
        outcome.error == "the worker responded with 500 Internal Server Error: ValueError: no paper"
    )


async def test_a_failed_attempt_is_not_done() -> None:
    worker = make_worker()
    attempts: list[int] = []

    @worker.job("report")
    async def handle(payload: object, run: Run) -> None:
        attempts.append(run.attempt)
        if run.attempt == 1:
            raise ValueError

    assert (await send(worker, single())).status == 500
    assert (await send(worker, single(headers={"wheelsched-attempt": "2"}))).status == 200
    assert attempts == [1, 2]


async def test_a_rejected_run_is_never_tried_again() -> None:
    outcome = understood(await send(raising(Reject("no such customer")), single()))
    assert isinstance(outcome, Rejected)
    assert "no such customer" in outcome.error


async def test_a_worker_says_when_to_come_back() -> None:
    answer = await send(raising(RetryLater(90.2, "the printer is warming up")), single())
    outcome = understood(answer)
    assert isinstance(outcome, Failed)
    assert outcome.retry_after_us == 91_000_000
    assert "the printer is warming up" in outcome.error


@pytest.mark.parametrize(
    ("after_s", "told"), [(-1, "0"), (0, "0"), (float("nan"), "0"), (float("inf"), "86400")]
)
async def test_any_number_is_a_time_to_come_back(after_s: float, told: str) -> None:
    answer = await send(raising(RetryLater(after_s)), single())
    assert (answer.status, answer.headers["retry-after"]) == (503, told)


async def test_an_error_whose_message_is_broken_is_a_failure_like_others() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    answer = await send(raising(Broken()), single())
    assert (answer.status, answer.body[:8]) == (500, b"Broken: ")


async def test_a_worker_that_wants_no_more_runs_says_so() -> None:
    outcome = understood(await send(raising(GoneForGood("moved to the new system")), single()))
    assert isinstance(outcome, Gone)
    assert "moved to the new system" in outcome.error


async def test_a_handler_whose_own_task_was_cancelled_has_failed() -> None:
    worker = make_worker()

    @worker.job("report")
    async def handle(payload: object) -> None:
        raise asyncio.CancelledError

    assert isinstance(understood(await send(worker, single())), Failed)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (SystemExit(2), b"SystemExit: 2"),
        (GeneratorExit("over"), b"GeneratorExit: over"),
        (BaseException("of no kind"), b"BaseException: of no kind"),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_sys_exit_in_a_handler_ends_only_the_attempt(
    error: BaseException, told: bytes, is_async: bool
) -> None:
    worker = raising(error)

    @worker.job("in a thread")
    def handle(payload: object) -> None:
        raise error

    job_name = "report" if is_async else "in a thread"
    answer = await send(worker, single(job_name=job_name))
    assert (answer.status, answer.body) == (500, told)


async def test_a_keyboard_interrupt_in_a_thread_fails_only_its_attempt() -> None:
    worker = make_worker()

    @worker.job("report")
    def handle(payload: object) -> None:
        raise KeyboardInterrupt

    answer = await send(worker, single())
    assert (answer.status, b"KeyboardInterrupt" in answer.body) == (500, True)


def test_ctrl_c_in_the_middle_of_a_handler_still_ends_the_worker() -> None:
    async def serve() -> None:
        worker = make_worker()

        @worker.job("report")
        async def handle(payload: object) -> None:
            signal.raise_signal(signal.SIGINT)

        await send(worker, single())

    loop = asyncio.new_event_loop()
    task = loop.create_task(serve())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as a program begins with
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
    finally:
        signal.signal(signal.SIGINT, before)
        loop.close()


async def test_an_error_is_cut_and_any_text() -> None:
    answer = await send(raising(ValueError("\ud800\x00" + "x" * 100_000)), single())
    text = answer.body.decode()
    assert len(text) == 2_000
    assert text.startswith("ValueError: ?\N{REPLACEMENT CHARACTER}xxx")


async def test_a_bad_payload_is_rejected_with_the_place() -> None:
    worker = make_worker()

    @worker.job("report")
    async def handle(payload: Report) -> None:
        raise AssertionError("never called")

    outcome = understood(await send(worker, single(b'{"name": 7}')))
    assert isinstance(outcome, Rejected)
    assert "Expected `str`, got `int` - at `$.name`" in outcome.error


async def test_a_job_without_a_handler_may_have_one_tomorrow() -> None:
    outcome = understood(await send(make_worker(), single(job_name="unheard of")))
    assert isinstance(outcome, Failed)
    assert "no handler for job 'unheard of'" in outcome.error


async def test_one_handler_for_all_other_jobs() -> None:
    worker = make_worker()
    seen: list[str] = []

    @worker.job("report")
    async def handle(payload: object) -> None:
        seen.append("report")

    @worker.job()
    async def handle_others(payload: object, run: Run) -> None:
        seen.append(f"other: {run.job_name}")

    for number, name in enumerate(("report", "bill")):
        assert (await send(worker, single(job_name=name, number=number))).status == 200
    assert seen == ["report", "other: bill"]


async def test_an_overtaken_attempt_does_nothing() -> None:
    worker = make_worker()
    seen: list[int] = []

    @worker.job("report")
    async def handle(payload: object, run: Run) -> None:
        seen.append(run.token)
        raise ValueError

    await send(worker, single(headers={"wheelsched-fencing-token": "8"}))
    answer = await send(worker, single(headers={"wheelsched-fencing-token": "7"}))
    assert (answer.status, seen) == (425, [8])


@pytest.mark.parametrize("payload", [b"{}", b"no longer valid"])
async def test_a_run_that_is_done_is_answered_as_done_whatever_the_token(payload: bytes) -> None:
    worker = make_worker()
    seen: list[int] = []

    @worker.job("report")
    async def handle(payload: dict[str, object], run: Run) -> None:
        seen.append(run.token)

    await send(worker, single(headers={"wheelsched-fencing-token": "8"}))
    for token in ("7", "8", "9"):
        repeated = single(payload, headers={"wheelsched-fencing-token": token})
        assert (await send(worker, repeated)).status == 200
    assert seen == [8]


async def test_in_a_batch_an_overtaken_attempt_is_marked_as_too_early() -> None:
    worker = make_worker()

    @worker.job("report")
    async def handle(payload: object, run: Run) -> None:
        if run.token == 4294967298:
            raise ValueError

    await send(worker, single(number=0, headers={"wheelsched-fencing-token": "4294967298"}))
    answers = read_answers((await send(worker, batch(element(0), element(1)))).body)
    assert answers is not None
    found = [(answers[run_id(number)].ok, answers[run_id(number)].too_early) for number in (0, 1)]
    assert found == [(False, True), (True, None)]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (signed("key", b"{}", secrets=(OTHER_SECRET,)), 401),
        (signed("key", b"{}", at_s=NOW_S - 3_600), 401),
        ({"webhook-signature": ""}, 401),
        (single(headers={"wheelsched-attempt": "many"})[0], 400),
    ],
)
async def test_an_invalid_request_reaches_no_handler(headers: dict[str, str], status: int) -> None:
    worker = raising(AssertionError("never called"))
    written, body = single()
    assert (await send(worker, (written | headers, body))).status == status


@pytest.mark.parametrize(
    "changed",
    [
        {"wheelsched-job-id": "018f3c2e-7a9b-7c3d-8e4f-000000000000"},
        {"wheelsched-job-name": "another"},
        {"wheelsched-run-id": run_id(5)},
        {"wheelsched-fencing-token": str(2**63 - 1)},
    ],
)
async def test_an_overheard_request_cannot_be_sent_again_as_another(
    changed: dict[str, str],
) -> None:
    worker = make_worker()
    seen: list[int] = []

    @worker.job()
    async def handle(payload: object, run: Run) -> None:
        seen.append(run.token)
        if len(seen) == 1:
            raise ValueError

    headers, body = single()
    assert (await send(worker, (headers, body))).status == 500
    assert (await send(worker, (headers | changed, body))).status == 401
    assert len(seen) == 1
    assert (await send(worker, single(headers={"wheelsched-attempt": "2"}))).status == 200


async def test_a_body_over_the_limit_is_not_even_verified() -> None:
    worker = make_worker(config=WorkerConfig(max_body_bytes=10))
    assert (await send(worker, ({}, b"x" * 11))).status == 413


async def test_a_batch_is_answered_run_by_run() -> None:
    worker = make_worker()

    @worker.job("report")
    async def handle(payload: dict[str, int], run: Run) -> None:
        match payload["error"]:
            case 1:
                raise ValueError("perhaps tomorrow")
            case 2:
                raise Reject("never")

    answer = await send(
        worker, batch(*(element(number, b'{"error": %d}' % number) for number in range(4)))
    )
    assert answer.status == 200
    answers = read_answers(answer.body)
    assert answers is not None
    found = [answers[run_id(number)] for number in range(4)]
    assert [each.ok for each in found] == [True, False, False, True]
    assert (found[1].error, found[1].retry) == ("ValueError: perhaps tomorrow", None)
    assert (found[2].error, found[2].retry) == ("never", False)


async def test_a_batch_runs_no_more_handlers_at_once_than_there_are_places() -> None:
    worker = make_worker(config=WorkerConfig(concurrency=3))
    at_work = 0
    most = 0

    @worker.job("report")
    async def handle(payload: object) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0)
        at_work -= 1

    answer = await send(worker, batch(*(element(number) for number in range(20))))
    assert len(msgspec.json.decode(answer.body)) == 20
    assert most == 3


async def test_an_empty_batch_has_an_empty_answer() -> None:
    assert (await send(make_worker(), batch())).body == b"[]"


async def test_requests_beyond_those_that_may_wait_are_refused_for_now() -> None:
    worker = make_worker(config=WorkerConfig(concurrency=1, max_waiting=2))
    end = asyncio.Event()

    @worker.job("report")
    async def handle(payload: object) -> None:
        await end.wait()

    held = [asyncio.create_task(send(worker, single(number=number))) for number in range(3)]
    for _ in range(10):
        await asyncio.sleep(0)
    refused = await send(worker, single(number=9))
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    end.set()
    assert [(await each).status for each in held] == [200, 200, 200]


async def test_a_request_that_is_given_up_ends_its_handler() -> None:
    worker = make_worker()
    begun, ended = asyncio.Event(), asyncio.Event()

    @worker.job("report")
    async def handle(payload: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    request = asyncio.create_task(send(worker, single()))
    await begun.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert ended.is_set()


async def test_stopping_waits_for_running_attempts_and_refuses_new_ones() -> None:
    worker = make_worker(config=WorkerConfig(stop_timeout_ms=60_000))
    begun, end = asyncio.Event(), asyncio.Event()

    @worker.job("report")
    async def handle(payload: object) -> None:
        begun.set()
        await end.wait()

    at_work = asyncio.create_task(send(worker, single()))
    await begun.wait()
    stopping = asyncio.create_task(worker.stop())
    await asyncio.sleep(0)
    refused = await send(worker, single(number=1))
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert not stopping.done()
    end.set()
    assert (await at_work).status == 200
    await stopping


async def test_an_unfinished_run_fails_at_the_deadline() -> None:
    worker = make_worker(config=WorkerConfig(stop_timeout_ms=5, concurrency=1))
    begun = asyncio.Event()

    @worker.job("report")
    async def handle(payload: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    at_work = asyncio.create_task(send(worker, single()))
    await begun.wait()
    waiting = asyncio.create_task(send(worker, single(number=1)))
    await asyncio.sleep(0)
    await worker.stop()
    outcome = understood(await at_work)
    assert isinstance(outcome, Failed)
    assert "stopped before the run ended" in outcome.error
    assert (await waiting).status == 503


def test_a_job_has_one_handler() -> None:
    worker = make_worker()
    worker.job("report")(lambda payload: None)
    with pytest.raises(HandlerTaken, match="'report'"):
        worker.job("report")


def test_a_long_job_needs_a_client() -> None:
    with pytest.raises(InvalidHandler, match="client"):
        make_worker().job("report", long=True)
