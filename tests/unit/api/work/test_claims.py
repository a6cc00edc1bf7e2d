"""Long polls: what a claim promises beyond the contract of all protocols."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest
from tests.api import Answered
from tests.contract.work.conftest import Scheduler
from tests.waiting import until
from tests.work import MemorySubscription, MemoryWork

from wheelsched.api.work import claims
from wheelsched.core.outcome import Succeeded
from wheelsched.ports.work import Attempted, QueueRun
from wheelsched.wire.callback import write_instant

SECOND_US = 1_000_000


async def claim(scheduler: Scheduler, claim_id: str = "c1", **fields: Any) -> Answered:
    body = {"worker_id": "w1", "claim_id": claim_id, "max_runs": 5, "wait": "30s"} | fields
    return await scheduler.api.post("/queues/billing/claim", body)


async def until_waiting(scheduler: Scheduler, requests: int = 1) -> None:
    async def is_waiting() -> bool:
        return scheduler.api.vitals.waiting == requests and bool(scheduler.work.subscriptions)

    await until(is_waiting)


async def until_idle(scheduler: Scheduler) -> None:
    async def is_idle() -> bool:
        return not scheduler.work.subscriptions

    await until(is_idle)


def ids(answer: Answered) -> list[str]:
    assert answer.status == 200, answer.body
    return [run["run_id"] for run in answer.body["runs"]]


async def test_the_same_claim_gets_the_same_runs_again(scheduler: Scheduler) -> None:
    scheduler.add(9)
    first = await claim(scheduler)
    scheduler.now_us += 4 * SECOND_US
    again = await claim(scheduler)
    assert again.body == first.body
    assert len(ids(first)) == 5
    assert len(ids(await claim(scheduler, "c2"))) == 4


async def test_a_claim_with_an_expired_lease_is_refused(scheduler: Scheduler) -> None:
    """Its runs may be with another worker, so they are not handed out under this id again."""
    (added,) = scheduler.add()
    await claim(scheduler)
    scheduler.pass_time(6 * SECOND_US)
    refused = await claim(scheduler)
    assert (refused.status, refused.body["type"]) == (
        409,
        "urn:wheelsched:problem:claim-expired",
    )
    assert ids(await claim(scheduler, "c2")) == [added.run_id]


async def test_a_claim_that_got_nothing_may_be_sent_again(scheduler: Scheduler) -> None:
    assert ids(await claim(scheduler, wait="0s")) == []
    (added,) = scheduler.add()
    assert ids(await claim(scheduler)) == [added.run_id]


async def test_two_requests_of_one_claim_get_the_same_runs(scheduler: Scheduler) -> None:
    requests = [asyncio.create_task(claim(scheduler)) for _ in range(2)]
    await until_waiting(scheduler, requests=2)
    assert sum(each.credits for each in scheduler.work.subscriptions) == 5
    added = scheduler.add(3)
    for answer in await asyncio.gather(*requests):
        assert ids(answer) == [run.run_id for run in added]


async def test_a_claim_goes_on_while_one_of_its_requests_waits(scheduler: Scheduler) -> None:
    requests = [asyncio.create_task(claim(scheduler)) for _ in range(2)]
    await until_waiting(scheduler, requests=2)
    requests[0].cancel()
    await until_waiting(scheduler, requests=1)
    (added,) = scheduler.add()
    assert ids(await requests[1]) == [added.run_id]


async def give_back(scheduler: Scheduler, run: dict[str, Any], **fields: Any) -> dict[str, Any]:
    item = {"run_id": run["run_id"], "token": run["fencing_token"]}
    body = {"worker_id": "w1", "claim_id": "c1", "items": [item]} | fields
    options = {"token": body.pop("authorization", scheduler.api.token)}
    answer = await scheduler.api.post("/queues/billing/give-back", body, **options)
    assert answer.status == 200, answer.body
    (given,) = answer.body
    assert given.pop("run_id") == run["run_id"]
    assert isinstance(given, dict)
    return given


async def test_a_run_that_was_not_begun_is_given_back(scheduler: Scheduler) -> None:
    (added,) = scheduler.add()
    (run,) = (await claim(scheduler)).body["runs"]
    assert await give_back(scheduler, run) == {"accepted": True}
    assert added.given_back == 1
    (again,) = (await claim(scheduler, "c2", worker_id="w2")).body["runs"]
    assert (again["run_id"], again["attempt"]) == (added.run_id, 1)
    assert again["fencing_token"] == run["fencing_token"]


async def test_a_run_that_another_worker_has_is_not_given_back(scheduler: Scheduler) -> None:
    """The answer was lost, and the worker repeats what it has given back."""
    (added,) = scheduler.add()
    (run,) = (await claim(scheduler)).body["runs"]
    await give_back(scheduler, run)
    await claim(scheduler, "c2", worker_id="w2")
    again = await give_back(scheduler, run)
    assert (again["accepted"], added.given_back) == (False, 1)
    assert "this claim" in again["reason"]
    assert await give_back(scheduler, run, worker_id="w2", claim_id="c2") == {"accepted": True}
    assert added.given_back == 2


async def test_a_claim_that_was_given_back_is_not_answered_again(scheduler: Scheduler) -> None:
    scheduler.add(2)
    runs = (await claim(scheduler)).body["runs"]
    await give_back(scheduler, runs[0])
    assert (await claim(scheduler)).status == 409


async def test_a_run_that_has_ended_is_not_given_back(scheduler: Scheduler) -> None:
    scheduler.add()
    (run,) = (await claim(scheduler)).body["runs"]
    outcome = {"run_id": run["run_id"], "token": run["fencing_token"], "ok": True}
    await scheduler.api.post("/runs/outcomes", [outcome])
    assert (await give_back(scheduler, run))["accepted"] is False


async def test_no_tenant_gives_back_runs_of_another(scheduler: Scheduler) -> None:
    api = scheduler.api
    await api.add_token("wst_other", await api.add_tenant("other"), "work")
    (added,) = scheduler.add()
    (run,) = (await claim(scheduler)).body["runs"]
    assert (await give_back(scheduler, run, authorization="wst_other"))["accepted"] is False
    assert added.given_back == 0


async def test_an_invalid_run_id_is_answered(scheduler: Scheduler) -> None:
    given = await give_back(scheduler, {"run_id": "nonsense", "fencing_token": 1})
    assert given == {"accepted": False, "reason": "not a valid run id"}


async def test_the_lease_of_a_claim_ends_when_its_run_is_given_back(scheduler: Scheduler) -> None:
    scheduler.add()
    (run,) = (await claim(scheduler, lease="30s")).body["runs"]
    await give_back(scheduler, run)
    await claim(scheduler, "c2")
    beat = {"run_id": run["run_id"], "token": run["fencing_token"]}
    await scheduler.api.post("/runs/heartbeats", [beat])
    assert scheduler.work.leases == [None]


async def test_heartbeats_with_different_leases_are_recorded_together(
    scheduler: Scheduler,
) -> None:
    scheduler.add(3)
    runs = (await claim(scheduler, lease="40s")).body["runs"]
    beats = [
        {"run_id": run["run_id"], "token": run["fencing_token"], "lease": lease}
        for run, lease in zip(runs, ("30s", "1m", None), strict=True)
    ]
    answer = await scheduler.api.post("/runs/heartbeats", beats)
    assert [one["held"] for one in answer.body] == [True] * 3
    assert scheduler.work.leases == [30 * SECOND_US, 60 * SECOND_US, 40 * SECOND_US]
    assert scheduler.work.heartbeats == 1


async def test_the_claim_id_of_another_worker_is_its_own(scheduler: Scheduler) -> None:
    first, second = scheduler.add(2)
    assert ids(await claim(scheduler, max_runs=1)) == [first.run_id]
    assert ids(await claim(scheduler, max_runs=1, worker_id="w2")) == [second.run_id]


async def test_the_claim_id_of_another_tenant_is_its_own(scheduler: Scheduler) -> None:
    api = scheduler.api
    tenant_id = await api.add_tenant("other")
    await api.add_token("wst_other", tenant_id, "work")
    scheduler.add()
    await claim(scheduler)
    body = {"worker_id": "w1", "claim_id": "c1", "wait": "0s"}
    other = await api.post("/queues/billing/claim", body, token="wst_other")
    assert ids(other) == []


async def test_a_repeated_claim_does_not_get_more_than_it_asks_for(scheduler: Scheduler) -> None:
    scheduler.add(5)
    await claim(scheduler)
    assert (await claim(scheduler, max_runs=4)).status == 422


async def test_runs_that_arrive_after_the_poller_has_gone_are_given_back(
    scheduler: Scheduler,
) -> None:
    """The source handed them out before it knew that the poller had gone."""
    claiming = asyncio.create_task(claim(scheduler))
    await until_waiting(scheduler)
    (late,) = scheduler.work.subscriptions
    claiming.cancel()
    await until_idle(scheduler)
    scheduler.work.is_paused = True
    (added,) = scheduler.add()
    late.take([added.content()], scheduler.now_us)
    assert added.given_back == 1


async def test_runs_beyond_the_credits_are_given_back(scheduler: Scheduler) -> None:
    claiming = asyncio.create_task(claim(scheduler, max_runs=1))
    await until_waiting(scheduler)
    (subscription,) = scheduler.work.subscriptions
    scheduler.work.is_paused = True
    first, second = scheduler.add(2)
    subscription.take([first.content(), second.content()], scheduler.now_us + SECOND_US)
    assert ids(await claiming) == [first.run_id]
    assert (first.given_back, second.given_back) == (0, 1)


async def test_a_claim_tells_the_lease_of_the_shard(scheduler: Scheduler) -> None:
    """The runs were on their way for a while, and the lease of the first one ends first."""
    claiming = asyncio.create_task(claim(scheduler))
    await until_waiting(scheduler)
    (subscription,) = scheduler.work.subscriptions
    scheduler.work.is_paused = True
    first, second = scheduler.add(2)
    until_us = scheduler.now_us + 3 * SECOND_US
    subscription.take([first.content()], until_us)
    subscription.take([second.content()], until_us + SECOND_US)
    answer = await claiming
    assert {run["lease_expires_at"] for run in answer.body["runs"]} == {write_instant(until_us)}
    scheduler.now_us = until_us - 1
    assert (await claim(scheduler)).body == answer.body
    scheduler.now_us = until_us
    assert (await claim(scheduler)).status == 409


async def test_the_memory_of_claims_is_bounded(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "MAX_KEPT_BYTES", 1_000)
    monkeypatch.setattr(claims, "MAX_EXPIRED", 2)
    scheduler.add(10)
    answers = [await claim(scheduler, f"c{i}", max_runs=2) for i in range(5)]
    assert (await claim(scheduler, "c4", max_runs=2)).body == answers[4].body
    assert (await claim(scheduler, "c3", max_runs=2)).status == 409
    assert ids(await claim(scheduler, "c0", max_runs=2, wait="0s")) == []  # forgotten: a new claim


async def test_a_heartbeat_without_a_lease_has_that_of_its_claim(scheduler: Scheduler) -> None:
    scheduler.add(2)
    for claim_id, lease in (("c1", "45s"), ("c2", None)):
        (run,) = (await claim(scheduler, claim_id, max_runs=1, lease=lease)).body["runs"]
        item = {"run_id": run["run_id"], "token": run["fencing_token"]}
        await scheduler.api.post("/runs/heartbeats", [item])
        await scheduler.api.post("/runs/heartbeats", [item | {"lease": "10s"}])
    assert scheduler.work.leases == [45_000_000, 10_000_000, None, 10_000_000]


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"max_runs": 0}, "/max_runs"),
        ({"max_runs": 1_001}, "/max_runs"),
        ({"wait": "61s"}, "/wait"),
        ({"wait": "soon"}, "/wait"),
        ({"lease": "4s"}, "/lease"),
        ({"lease": "31d"}, "/lease"),
        ({"claim_id": ""}, "/claim_id"),
        ({"worker_id": "x" * 256}, "/worker_id"),
        ({"queue": "billing"}, "/queue"),
    ],
)
async def test_an_invalid_claim_is_refused_with_a_pointer(
    scheduler: Scheduler, fields: dict[str, Any], pointer: str
) -> None:
    refused = await claim(scheduler, **fields)
    assert (refused.status, refused.pointers) == (422, [pointer])


async def test_an_invalid_queue_is_refused(scheduler: Scheduler) -> None:
    body = {"worker_id": "w1", "claim_id": "c1"}
    refused = await scheduler.api.post("/queues/%20/claim", body)
    assert (refused.status, refused.pointers) == (422, ["/queue"])


async def test_reports_have_at_most_a_thousand_items(scheduler: Scheduler) -> None:
    item = {"run_id": "nonsense", "token": 1}
    for path, fields in (("/runs/outcomes", {"ok": True}), ("/runs/heartbeats", {})):
        sent = await scheduler.api.post(path, [item | fields] * 1_000)
        assert (sent.status, len(sent.body)) == (200, 1_000)
        assert (await scheduler.api.post(path, [item | fields] * 1_001)).status == 422


@pytest.mark.parametrize(
    ("path", "item", "pointer"),
    [
        ("/runs/outcomes", {"ok": "yes"}, "/1/ok"),
        ("/runs/outcomes", {"ok": False, "retry_after": "soon"}, "/1/retry_after"),
        ("/runs/outcomes", {"ok": True, "colour": "red"}, "/1/colour"),
        ("/runs/heartbeats", {"lease": "1s"}, "/1/lease"),
        ("/runs/heartbeats", {"token": -1}, "/1/token"),
    ],
)
async def test_an_invalid_item_is_refused_with_a_pointer(
    scheduler: Scheduler, path: str, item: dict[str, Any], pointer: str
) -> None:
    valid = {"run_id": "nonsense", "token": 1} | ({"ok": True} if "outcomes" in path else {})
    refused = await scheduler.api.post(path, [valid, valid | item])
    assert (refused.status, refused.pointers) == (422, [pointer])


async def test_an_outcome_needs_no_idempotency_key(scheduler: Scheduler) -> None:
    (added,) = scheduler.add()
    (run,) = (await claim(scheduler)).body["runs"]
    item = {"run_id": run["run_id"], "token": run["fencing_token"], "ok": True}
    for _ in range(2):
        headers = {"Idempotency-Key": "k1"}
        answer = await scheduler.api.post("/runs/outcomes", [item], headers=headers)
        assert answer.body == [{"run_id": added.run_id, "accepted": True}]
    assert added.outcome == Succeeded()


async def test_a_stopping_process_answers_all_claims(scheduler: Scheduler) -> None:
    claiming = asyncio.create_task(claim(scheduler))
    await until_waiting(scheduler)
    await scheduler.api.stop()
    assert ids(await claiming) == []


class DistantWork(MemoryWork):
    """Runs that wait at a shard: a link carries credits there, and runs back."""

    def subscribe(
        self,
        tenant_id: UUID,
        queues: Sequence[str],
        take: Callable[[Sequence[QueueRun], int], None],
        cancel: Callable[[Sequence[Attempted]], None],
    ) -> MemorySubscription:
        return DistantSubscription(self, tenant_id, queues, take, cancel)


class DistantSubscription(MemorySubscription):
    def add_credits(self, count: int) -> None:
        self.credits += count
        asyncio.get_running_loop().call_later(0.001, self._arrive)

    def _arrive(self) -> None:
        if self.credits:
            self.work.subscriptions.append(self)
            self.work.hand_out()


async def test_a_claim_that_does_not_wait_gets_runs_over_a_link() -> None:
    tenant_id = UUID(int=1)
    work = DistantWork(lambda: SECOND_US)
    (added,) = work.add(tenant_id)
    made = claims.Claims(work, lambda _runs, _lease_us: None, lambda: SECOND_US)
    key = claims.ClaimKey(tenant_id, ("billing",), "w1", "c1")
    claimed = await made.claim(key, claims.Wanted(max_runs=1, wait_us=0))
    assert [run.attempt.key for run in claimed.runs] == [added.key]
