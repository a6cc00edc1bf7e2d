"""What every protocol of workers that pull promises."""

import asyncio
from datetime import datetime
from typing import Any

from tests.contract.work.conftest import Scheduler
from tests.contract.work.protocols import WorkerSide
from tests.waiting import until
from tests.work import MemoryRun

from wheelsched.core.outcome import Failed, Gone, Rejected, Succeeded

SECOND_US = 1_000_000


def report(run: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"run_id": run["run_id"], "token": run["fencing_token"], **fields}


async def begin_to_wait(scheduler: Scheduler) -> None:
    """Returns when a worker has given a credit."""

    async def has_credit() -> bool:
        return any(each.credits for each in scheduler.work.subscriptions)

    await until(has_credit)


async def test_a_run_has_everything_that_a_worker_needs(
    scheduler: Scheduler, worker: WorkerSide
) -> None:
    (added,) = scheduler.add()
    (run,) = await worker.claim()
    expires_at = datetime.fromisoformat(run.pop("lease_expires_at"))
    difference_us = expires_at.timestamp() * SECOND_US - scheduler.now_us - 5 * SECOND_US
    assert abs(difference_us) < 1_002  # some protocols have milliseconds
    assert run == {
        "run_id": added.run_id,
        "job_id": str(added.key.job_id),
        "job_name": "report",
        "queue": "billing",
        "scheduled_at": run["scheduled_at"],
        "attempt": 1,
        "fencing_token": added.token,
        "idempotency_key": f"{added.key.job_id}:{added.key.due_us}",
        "trigger": "schedule",
        "timeout_ms": 120_000,
        "payload": {"number": 0},
    }


async def test_a_waiting_worker_gets_a_run_when_it_comes_due(
    scheduler: Scheduler, worker: WorkerSide
) -> None:
    claiming = asyncio.create_task(worker.claim())
    await begin_to_wait(scheduler)
    (added,) = scheduler.add()
    (run,) = await claiming
    assert run["run_id"] == added.run_id


async def test_a_worker_never_gets_more_than_it_asked_for(
    scheduler: Scheduler, worker: WorkerSide
) -> None:
    scheduler.add(10)
    assert len(await worker.claim(3)) == 3
    assert len(scheduler.work.waiting) == 7
    assert len(await worker.claim(7)) == 7


async def test_a_worker_gets_only_runs_of_its_queue_and_tenant(
    scheduler: Scheduler, worker: WorkerSide
) -> None:
    other_tenant = await scheduler.api.add_tenant("other")
    scheduler.work.add(other_tenant, "billing")
    scheduler.add(queue="mail")
    claiming = asyncio.create_task(worker.claim(9))
    await begin_to_wait(scheduler)
    (added,) = scheduler.add()
    assert [run["run_id"] for run in await claiming] == [added.run_id]


async def test_outcomes_are_answered_one_by_one(scheduler: Scheduler, worker: WorkerSide) -> None:
    added = scheduler.add(5)
    runs = await worker.claim(5)
    answers = await worker.finish(
        [
            report(runs[0], ok=True),
            report(runs[1], ok=False, error="no paper"),
            report(runs[2], ok=False, error="no such customer", retry=False),
            report(runs[3], ok=False, error="busy", retry_after="30s"),
            report(runs[4], ok=True) | {"token": runs[4]["fencing_token"] + 1_000},
            {"run_id": "nonsense", "token": 1, "ok": True},
        ]
    )
    assert [(one["run_id"], one["accepted"]) for one in answers] == [
        *((run["run_id"], True) for run in runs[:4]),
        (runs[4]["run_id"], False),
        ("nonsense", False),
    ]
    assert [one.get("reason") for one in answers[4:]] == [
        "stale fencing token",
        "not a valid run id",
    ]
    assert [run.outcome for run in added] == [
        Succeeded(),
        Failed(error="no paper"),
        Rejected(error="no such customer"),
        Failed(error="busy", retry_after_us=30 * SECOND_US),
        None,
    ]


async def test_an_attempt_that_was_not_begun_is_reported_as_too_early(
    scheduler: Scheduler, worker: WorkerSide
) -> None:
    (added,) = scheduler.add()
    (run,) = await worker.claim()
    await worker.finish([report(run, ok=False, error="in progress", too_early=True)])
    assert isinstance(added.outcome, Failed)
    assert added.outcome.is_too_early


async def test_an_outcome_may_ask_to_pause_the_job(
    scheduler: Scheduler, worker: WorkerSide
) -> None:
    (added,) = scheduler.add()
    (run,) = await worker.claim()
    (answer,) = await worker.finish([report(run, ok=False, error="closed", gone=True)])
    assert answer["accepted"] is True
    assert added.outcome == Gone(error="closed", http_status=None)


async def test_an_outcome_may_be_sent_again(scheduler: Scheduler, worker: WorkerSide) -> None:
    scheduler.add()
    (run,) = await worker.claim()
    for _ in range(3):
        (answer,) = await worker.finish([report(run, ok=True)])
        assert answer["accepted"] is True


async def test_an_outcome_is_accepted_through_another_protocol(
    scheduler: Scheduler, worker: WorkerSide, another: WorkerSide
) -> None:
    (added,) = scheduler.add()
    (run,) = await worker.claim()
    (held,) = await another.heartbeat([report(run)])
    assert held == {"run_id": added.run_id, "held": True, "cancel": False}
    (answer,) = await another.finish([report(run, ok=True)])
    assert answer == {"run_id": added.run_id, "accepted": True}


async def test_the_runs_of_a_worker_that_has_gone_are_handed_out_again_after_their_lease(
    scheduler: Scheduler, worker: WorkerSide, another: WorkerSide
) -> None:
    (added,) = scheduler.add()
    (run,) = await worker.claim()
    await worker.leave()
    claiming = asyncio.create_task(another.claim())
    scheduler.pass_time(5 * SECOND_US)
    (again,) = await claiming
    assert (again["run_id"], again["attempt"]) == (added.run_id, 2)
    (late,) = await another.finish([report(run, ok=True)])
    assert (late["accepted"], late["reason"]) == (False, "stale fencing token")


async def test_a_run_that_is_given_back_goes_to_another_worker_as_the_same_attempt(
    scheduler: Scheduler, worker: WorkerSide, another: WorkerSide
) -> None:
    (added,) = scheduler.add()
    (run,) = await worker.claim()
    claiming = asyncio.create_task(another.claim())
    await worker.give_back([report(run)])
    (again,) = await claiming
    assert (again["run_id"], again["attempt"], added.given_back) == (added.run_id, 1, 1)
    (answer,) = await another.finish([report(again, ok=True)])
    assert answer["accepted"] is True


async def test_a_heartbeat_keeps_a_run_beyond_its_delivery_lease(
    scheduler: Scheduler, worker: WorkerSide
) -> None:
    (added,) = scheduler.add()
    (run,) = await worker.claim()
    (answer,) = await worker.heartbeat([report(run, lease="1h")])
    assert answer == {"run_id": added.run_id, "held": True, "cancel": False}
    scheduler.pass_time(1_800 * SECOND_US)
    (answer,) = await worker.finish([report(run, ok=True)])
    assert answer["accepted"] is True


async def test_a_heartbeat_tells_that_a_run_is_lost(
    scheduler: Scheduler, worker: WorkerSide
) -> None:
    scheduler.add()
    (run,) = await worker.claim()
    scheduler.pass_time(6 * SECOND_US)
    answers = await worker.heartbeat([report(run), {"run_id": "nonsense", "token": 1}])
    assert [one["held"] for one in answers] == [False, False]


async def test_a_heartbeat_tells_that_a_run_was_cancelled(
    scheduler: Scheduler, worker: WorkerSide
) -> None:
    (added,) = scheduler.add()
    (run,) = await worker.claim()
    scheduler.work.cancel(added)
    (answer,) = await worker.heartbeat([report(run)])
    assert answer == {"run_id": added.run_id, "held": True, "cancel": True}


async def test_poll_and_stream_share_one_source_of_credits(
    scheduler: Scheduler, worker: WorkerSide, another: WorkerSide
) -> None:
    """However many workers wait, and in whatever protocol, each run goes to one of them."""
    claims = [asyncio.create_task(each.claim(10)) for each in (worker, another)]

    async def both_wait() -> bool:
        return sum(each.credits for each in scheduler.work.subscriptions) == 20

    await until(both_wait)
    scheduler.add(20)
    runs = [run["run_id"] for claimed in await asyncio.gather(*claims) for run in claimed]
    assert len(runs) == len(set(runs)) == 20


async def test_a_worker_that_has_gone_while_it_waits_takes_nothing(
    scheduler: Scheduler, worker: WorkerSide, another: WorkerSide
) -> None:
    claiming = asyncio.create_task(worker.claim(5))
    await begin_to_wait(scheduler)
    claiming.cancel()
    await asyncio.wait([claiming])
    await worker.leave()

    async def nobody_waits() -> bool:
        return not scheduler.work.subscriptions

    await until(nobody_waits)
    (added,) = scheduler.add()
    (run,) = await another.claim()
    assert (run["run_id"], run["attempt"]) == (added.run_id, 1)


async def test_a_token_needs_the_scope_work(scheduler: Scheduler) -> None:
    api = scheduler.api
    await api.add_token("wst_write", api.tenant_id, "read", "write")
    body = {"worker_id": "w", "claim_id": "c"}
    calls = [
        ("/queues/billing/claim", body),
        ("/runs/outcomes", []),
        ("/runs/heartbeats", []),
    ]
    for path, sent in calls:
        assert (await api.post(path, sent, token="wst_write")).status == 403
    assert (await api.get("/stream", token="wst_write")).status == 403
    assert (await api.get("/queues", token="wst_write")).status == 200
    await api.add_token("wst_work", api.tenant_id, "work")
    assert (await api.get("/queues", token="wst_work")).status == 200
    assert (await api.post("/runs/outcomes", [], token="wst_work")).status == 200


async def test_queues_are_listed_with_their_depth_and_their_workers(
    scheduler: Scheduler, worker: WorkerSide
) -> None:
    oldest: MemoryRun = scheduler.add(2, queue="mail")[0]
    claiming = asyncio.create_task(worker.claim(7))
    await begin_to_wait(scheduler)
    scheduler.now_us += 90 * SECOND_US
    answer = await scheduler.api.get("/queues")
    billing, mail = answer.body["items"]
    assert billing == {
        "queue": "billing",
        "depth": 0,
        "oldest_at": None,
        "oldest_age_ms": None,
        "workers": 1,
        "credits": 7,
    }
    assert (mail["queue"], mail["depth"], mail["workers"]) == ("mail", 2, 0)
    assert datetime.fromisoformat(mail["oldest_at"]).timestamp() * SECOND_US == oldest.key.due_us
    assert mail["oldest_age_ms"] == 90_000
    claiming.cancel()
