"""One request for one run: the contract of docs/WORKER.md."""

import asyncio
import gzip
from urllib.parse import unquote
from uuid import uuid4

import pytest
from aiohttp import web
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
from tests.contract.delivery.conftest import MINUTE_US, OLD_SECRET, SECRET, World
from tests.workers import Received, Worker, running_worker

from wheelsched.core.model import RunKey, Trigger
from wheelsched.core.outcome import Accepted, Failed, Gone, Rejected, Succeeded
from wheelsched.delivery.http.dispatcher import HttpDispatcher
from wheelsched.errors import SignatureMismatch
from wheelsched.wire.callback import SIGNATURE, SIGNED
from wheelsched.worker.signature import Verifier


async def test_a_worker_gets_the_payload_byte_for_byte(world: World, worker: Worker) -> None:
    payload = '{"b" : 1,  "a":[ 1.0, "ü", "\\u00fc" ]}'.encode()
    assert await world.send(worker.url, payload=payload) == Succeeded(http_status=200)
    (received,) = worker.received
    assert received.body == payload
    assert received.method == "POST"
    assert received.path == "/hooks/report?a=b"
    assert received.headers["Content-Type"] == "application/json"


async def test_a_worker_gets_every_header_of_the_contract(world: World, worker: Worker) -> None:
    await world.send(
        worker.url,
        key=RunKey(world.job_id, 1_794_837_600_000_123),
        job_name="Wöchentlich 100 %",
        scheduled_us=1_794_837_600_250_000,
        attempt=3,
        token=(7 << 32) + 42,
        trigger=Trigger.BACKFILL,
        idempotency_key="report:2026-11-16",
    )
    headers = worker.received[0].headers
    assert headers["Idempotency-Key"] == headers["webhook-id"] == "report:2026-11-16"
    assert headers["webhook-timestamp"] == str(world.now_us // 1_000_000)
    assert headers["wheelsched-run-id"] == "018f3c2e7a9b7c3d8e4f5a6b7c8d9e0f-1794837600000123"
    assert headers["wheelsched-job-id"] == "018f3c2e-7a9b-7c3d-8e4f-5a6b7c8d9e0f"
    assert headers["wheelsched-job-name"] == "W%C3%B6chentlich%20100%20%25"
    assert headers["wheelsched-scheduled-at"] == "2026-11-16T14:00:00.250000Z"
    assert headers["wheelsched-attempt"] == "3"
    assert headers["wheelsched-fencing-token"] == "30064771114"
    assert headers["wheelsched-trigger"] == "backfill"
    assert headers["wheelsched-timeout-ms"] == "60000"
    version, trace_id, span_id, flags = headers["traceparent"].split("-")
    assert (version, len(trace_id), flags) == ("00", 32, "01")
    assert int(trace_id, 16) > 0
    assert span_id == "000000070000002a"


@pytest.mark.parametrize("evil", ["\r\nX-Evil: 1", "\nX-Evil: 1", "\x00", "\x85", "ü"])
async def test_whatever_is_stored_no_header_breaks_its_line(
    world: World, worker: Worker, evil: str
) -> None:
    outcome = await world.send(worker.url, idempotency_key=f"a{evil}", job_name=f"b{evil}")
    assert outcome == Succeeded(http_status=200)
    (received,) = worker.received
    assert "X-Evil" not in received.headers
    assert unquote(received.headers["Idempotency-Key"]) == f"a{evil}"
    assert unquote(received.headers["wheelsched-job-name"]) == f"b{evil}"
    Webhook(SECRET).verify(received.body, dict(received.headers))


async def test_the_attempts_of_a_run_are_spans_of_one_trace(world: World, worker: Worker) -> None:
    await world.send(worker.url, attempt=1, token=(7 << 32) + 1)
    await world.send(worker.url, attempt=2, token=(8 << 32) + 1)
    await world.send(worker.url, key=RunKey(world.job_id, 1))
    first, second, other = (
        received.headers["traceparent"].split("-") for received in worker.received
    )
    assert first[1] == second[1] != other[1]
    assert first[2] != second[2]


async def test_nothing_else_is_asked_of_a_worker(world: World, worker: Worker) -> None:
    await world.send(worker.url)
    headers = worker.received[0].headers
    assert "Accept-Encoding" not in headers
    assert "Cookie" not in headers
    assert "Transfer-Encoding" not in headers
    assert headers["User-Agent"].startswith("wheelsched/")


async def test_a_target_has_a_method_and_headers_of_its_own(world: World, worker: Worker) -> None:
    route = world.route(worker.url, method="PUT", headers={"x-team": "a", "user-agent": "mine"})
    prepared = world.dispatcher.prepare(route, world.callback())
    await world.dispatcher.send(route, [prepared], world.begin)
    (received,) = worker.received
    assert received.method == "PUT"
    assert received.headers["X-Team"] == "a"
    assert received.headers.getall("User-Agent") == ["mine"]


@pytest.mark.parametrize("secret", [SECRET, OLD_SECRET])
async def test_either_secret_verifies_while_they_rotate(
    world: World, worker: Worker, secret: str
) -> None:
    await world.send(worker.url, secrets=(SECRET, OLD_SECRET))
    (received,) = worker.received
    assert Webhook(secret).verify(received.body, dict(received.headers)) == {"report": "weekly"}


async def test_another_secret_does_not(world: World, worker: Worker) -> None:
    await world.send(worker.url)
    (received,) = worker.received
    with pytest.raises(WebhookVerificationError):
        Webhook(OLD_SECRET).verify(received.body, dict(received.headers))


async def test_what_is_sent_long_after_its_time_is_signed_again(
    world: World, worker: Worker
) -> None:
    await world.send(worker.url, send_at_us=world.now_us - MINUTE_US)
    await world.send(worker.url, send_at_us=world.now_us - 10 * MINUTE_US)
    in_time, late = worker.received
    assert in_time.headers["webhook-timestamp"] == str((world.now_us - MINUTE_US) // 1_000_000)
    assert late.headers["webhook-timestamp"] == str(world.now_us // 1_000_000)
    for received in worker.received:
        Webhook(SECRET).verify(received.body, dict(received.headers))
        assert len(received.headers.getall("webhook-signature")) == 1
        assert received.headers["wheelsched-run-id"]


@pytest.mark.parametrize("late_us", [0, 10 * MINUTE_US])
async def test_the_sdk_takes_what_is_sent_and_nothing_of_it_changed(
    world: World, worker: Worker, late_us: int
) -> None:
    await world.send(
        worker.url,
        job_name="Wöchentlich: 100 %",
        secrets=(SECRET, OLD_SECRET),
        send_at_us=world.now_us - late_us,
    )
    (received,) = worker.received
    headers = {name.lower(): value for name, value in received.headers.items()}
    said = {name for name in headers if name.startswith("wheelsched-")}
    assert said == {*SIGNED, SIGNATURE}
    for secret in (SECRET, OLD_SECRET):
        verifier = Verifier([secret], tolerance_us=MINUTE_US, wall_us=lambda: world.now_us)
        assert verifier.verify(headers, received.body) == headers["webhook-id"]
        for name in SIGNED:
            with pytest.raises(SignatureMismatch):
                verifier.verify(headers | {name: headers[name] + "0"}, received.body)


async def test_it_begins_when_the_request_goes_out(world: World, worker: Worker) -> None:
    seen: list[int] = []

    async def answer(received: object) -> object:
        seen.append(world.begun)
        raise asyncio.CancelledError  # the connection ends

    worker.answer = answer  # type: ignore[assignment] # it never answers
    await world.send(worker.url)
    assert seen == [1]
    assert world.begun == 1


async def test_it_goes_out_at_once_when_there_is_a_connection(world: World, worker: Worker) -> None:
    await world.send(worker.url)
    route = world.route(worker.url)
    prepared = world.dispatcher.prepare(route, world.callback(1))
    promise = world.dispatcher.send(route, [prepared], world.begin)
    assert world.begun == 2  # before the loop has turned
    assert await promise == [Succeeded(http_status=200)]


async def test_an_abandoned_request_delays_no_other(world: World, worker: Worker) -> None:
    world.make(connections_per_host=1)
    await world.send(worker.url)
    arrived, answer = asyncio.Event(), worker.answer

    async def answer_the_next(received: Received) -> web.StreamResponse:
        if not arrived.is_set():
            arrived.set()
            await asyncio.Event().wait()
        return await answer(received)

    worker.answer = answer_the_next
    route = world.route(worker.url)
    prepared = [world.dispatcher.prepare(route, world.callback(number)) for number in (1, 2)]
    unheard = world.dispatcher.send(route, prepared[:1], world.begin)
    await arrived.wait()
    unheard.cancel()
    heard = await world.dispatcher.send(route, prepared[1:], world.begin)
    assert heard == [Succeeded(http_status=200)]
    assert [received.connection for received in worker.received] == [0, 0, 1]


async def test_what_is_not_to_begin_never_reaches_the_worker(world: World, worker: Worker) -> None:
    world.may_begin = False
    route = world.route(worker.url)
    prepared = world.dispatcher.prepare(route, world.callback(0))
    assert await world.dispatcher.send(route, [prepared], world.begin) is None
    assert worker.received == []


async def test_what_did_not_begin_leaves_its_connection_to_the_next(
    world: World, worker: Worker
) -> None:
    route = world.route(worker.url)
    prepared = world.dispatcher.prepare(route, world.callback(0))
    for world.may_begin in (False, True, False, True):
        await world.dispatcher.send(route, [prepared], world.begin)
    assert [received.connection for received in worker.received] == [0, 0]


async def test_a_long_payload_arrives_and_is_written_once(world: World, worker: Worker) -> None:
    payload = b'"' + b"x" * 256 * 1024 + b'"'
    assert await world.send(worker.url, payload=payload) == Succeeded(http_status=200)
    assert worker.received[0].body == payload
    assert world.begun == 1


async def test_202_is_accepted(world: World, worker: Worker) -> None:
    worker.answers(202)
    assert await world.send(worker.url) == Accepted()


async def test_410_says_that_the_job_is_not_wanted(world: World, worker: Worker) -> None:
    worker.answers(410, "moved away")
    outcome = await world.send(worker.url)
    assert outcome == Gone(error="the worker responded with 410 Gone: moved away")


async def test_retry_after_is_passed_on(world: World, worker: Worker) -> None:
    worker.answers(429, "slow down", Retry_After="7")
    outcome = await world.send(worker.url)
    assert isinstance(outcome, Failed)
    assert outcome.retry_after_us == 7_000_000
    assert outcome.error == "the worker responded with 429 Too Many Requests: slow down"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, Succeeded),
        (204, Succeeded),
        (299, Succeeded),
        (400, Rejected),
        (404, Rejected),
        (408, Failed),
        (425, Failed),
        (500, Failed),
        (503, Failed),
    ],
)
async def test_every_other_status_is_classified(
    world: World, worker: Worker, status: int, kind: type
) -> None:
    worker.answers(status)
    outcome = await world.send(worker.url)
    assert isinstance(outcome, kind)
    assert outcome.http_status == status


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(world: World, worker: Worker, status: int) -> None:
    worker.answers(status, Location=worker.url)
    outcome = await world.send(worker.url)
    assert isinstance(outcome, Rejected)
    assert outcome.http_status == status
    assert len(worker.received) == 1


@pytest.mark.parametrize("is_absolute", [True, False], ids=["absolute", "relative"])
async def test_a_redirect_by_a_trailing_slash_says_which_url_to_register(
    world: World, worker: Worker, is_absolute: bool
) -> None:
    location = worker.url.replace("/report?", "/report/?")
    worker.answers(307, Location=location if is_absolute else "/hooks/report/?a=b")
    outcome = await world.send(worker.url)
    assert outcome == Rejected(
        error="the worker responded with 307 Temporary Redirect: redirects are not followed; "
        f"the target redirects to {location}: register that URL",
        http_status=307,
    )
    assert len(worker.received) == 1


@pytest.mark.parametrize(
    "location",
    [
        *("https://elsewhere.example/hooks/report/?a=b", "/hooks/report/", "/other/?a=b"),
        *("", "/", "//", "http://[::1/", "http://127.0.0.1:x/hooks/report/?a=b", "\xff"),
    ],
)
async def test_any_other_redirect_is_called_one(
    world: World, worker: Worker, location: str
) -> None:
    worker.answers(302, Location=location)
    outcome = await world.send(worker.url)
    assert isinstance(outcome, Rejected)
    assert outcome.error == "the worker responded with 302 Found: redirects are not followed"


async def test_an_answer_is_not_decompressed(world: World, worker: Worker) -> None:
    async def answer(received: Received) -> web.Response:
        body = gzip.compress(b"out of paper")
        return web.Response(status=500, body=body, headers={"Content-Encoding": "gzip"})

    worker.answer = answer
    outcome = await world.send(worker.url)
    assert isinstance(outcome, Failed)
    assert outcome.http_status == 500
    assert "out of paper" not in outcome.error


async def test_a_cookie_is_not_kept(world: World, worker: Worker) -> None:
    worker.answers(200, Set_Cookie="a=b")
    await world.send(worker.url)
    await world.send(worker.url)
    assert "Cookie" not in worker.received[1].headers


async def test_proxies_of_the_environment_are_not_used(
    world: World, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert await world.send(worker.url) == Succeeded(http_status=200)


async def test_connections_are_kept(world: World, worker: Worker) -> None:
    for _ in range(3):
        await world.send(worker.url)
    assert [received.connection for received in worker.received] == [0, 0, 0]


async def test_a_host_has_a_bound(world: World, worker: Worker) -> None:
    world.make(connections_per_host=2)
    arrived = asyncio.Semaphore(0)
    go_on = asyncio.Event()
    usual = worker.answer

    async def answer(received: object) -> object:
        arrived.release()
        await go_on.wait()
        return await usual(received)  # type: ignore[arg-type] # what it was given

    worker.answer = answer  # type: ignore[assignment] # as above
    sending = [asyncio.create_task(world.send(worker.url)) for _ in range(5)]
    await arrived.acquire()
    await arrived.acquire()
    go_on.set()
    assert await asyncio.gather(*sending) == [Succeeded(http_status=200)] * 5
    assert worker.most_at_once == 2


async def test_a_worker_that_hangs_for_one_tenant_hurts_no_other(
    world: World, worker: Worker
) -> None:
    """At the same host as little as at others."""
    world.make(connections_per_host=2)
    usual = worker.answer
    go_on = asyncio.Event()
    hanging = asyncio.Semaphore(0)

    async def answer(received: Received) -> web.StreamResponse:
        if received.path == "/hanging":
            hanging.release()
            await go_on.wait()
        return await usual(received)

    worker.answer = answer
    url = worker.url.replace("/hooks/report?a=b", "/hanging")
    held = [asyncio.create_task(world.send(url)) for _ in range(5)]
    await hanging.acquire()
    await hanging.acquire()
    async with running_worker() as elsewhere:
        assert await world.send(elsewhere.url) == Succeeded(http_status=200)
        world.tenant_id = uuid4()
        for _ in range(3):
            assert await world.send(worker.url) == Succeeded(http_status=200)
            assert await world.send(elsewhere.url) == Succeeded(http_status=200)
    assert not any(sending.done() for sending in held)
    go_on.set()
    assert await asyncio.gather(*held) == [Succeeded(http_status=200)] * 5


async def test_no_two_tenants_share_a_connection(world: World, worker: Worker) -> None:
    await world.send(worker.url)
    world.tenant_id = uuid4()
    await world.send(worker.url)
    assert [received.connection for received in worker.received] == [0, 1]


async def test_all_hosts_have_a_bound(world: World, worker: Worker) -> None:
    world.make(connections=2)
    usual = worker.answer
    at_work: list[Received] = []
    at_once: list[int] = []
    both = asyncio.Barrier(2)

    async def answer(received: Received) -> web.StreamResponse:
        at_work.append(received)
        at_once.append(len(at_work))
        await asyncio.wait_for(both.wait(), 60)
        at_work.remove(received)
        return await usual(received)

    async with running_worker() as other:
        worker.answer = other.answer = answer
        urls = [worker.url, other.url] * 5
        outcomes = await asyncio.gather(*(world.send(url) for url in urls))
        assert outcomes == [Succeeded(http_status=200)] * 10
        assert len(worker.received) == len(other.received) == 5
    assert max(at_once) == 2


async def test_closing_fails_what_is_on_its_way(world: World, worker: Worker) -> None:
    world.make(connections_per_host=1)
    arrived = asyncio.Event()

    async def answer(received: Received) -> web.StreamResponse:
        arrived.set()
        await asyncio.Event().wait()
        raise AssertionError

    worker.answer = answer
    sending = [asyncio.create_task(world.send(worker.url)) for _ in range(2)]
    await arrived.wait()
    dispatcher = world.dispatcher
    assert isinstance(dispatcher, HttpDispatcher)
    await dispatcher.close()
    for outcome in await asyncio.gather(*sending):
        assert isinstance(outcome, Failed)
    assert len(worker.received) == 1
