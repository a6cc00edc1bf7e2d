"""A shard whose tokens its worker considers stale, with the worker of the SDK.

After an asynchronous failover the database may have forgotten an owner that has sent runs. The
owner that it knows sends them again, with lower tokens.
"""

from collections.abc import Sequence

import pytest
from tests.unit.shard.world import START_US, World
from tests.unit.worker.callbacks import make_worker, send, single

from wheelsched.core.model import RunKey, RunState, format_run_id
from wheelsched.core.outcome import Outcome, classify
from wheelsched.core.policies.policy import OnOverlap, OverlapPolicy, RetryPolicy
from wheelsched.ports import Callback, Route
from wheelsched.values.duration import SECOND
from wheelsched.worker import Run

EPOCH = 1 << 32  # of a token
FORGOTTEN = range(10, 15)  # the seconds whose runs the forgotten owner has sent


class ForgottenOwner:
    """A worker of the SDK that knows a later attempt of each run that is due in `FORGOTTEN`.

    The handler fails for the later attempts of the jobs called `failed`.
    """

    def __init__(self) -> None:
        self.worker = make_worker()
        self.worker.job()(self._handle)
        self.performed: list[RunKey] = []
        self.statuses: list[int] = []
        self._sent: set[RunKey] = set()
        self._numbers: dict[RunKey, int] = {}
        self._later_tokens: set[int] = set()

    async def __call__(self, _: Route, callbacks: Sequence[Callback]) -> list[Outcome]:
        (callback,) = callbacks
        due_s = (callback.key.due_us - START_US) // SECOND
        if due_s in FORGOTTEN and callback.key not in self._sent:
            self._sent.add(callback.key)
            later_token = callback.token + 1_000 * EPOCH
            self._later_tokens.add(later_token)
            await self._send(callback, later_token)
        status = await self._send(callback, callback.token)
        self.statuses.append(status)
        return [classify(status, now_us=0)]

    async def _send(self, callback: Callback, token: int) -> int:
        number = self._numbers.setdefault(callback.key, len(self._numbers))
        headers = {
            "wheelsched-run-id": format_run_id(callback.key),
            "wheelsched-job-name": callback.job_name,
            "wheelsched-fencing-token": str(token),
        }
        answer = await send(self.worker, single(number=number, headers=headers))
        if answer.status == 200:
            self.performed.append(callback.key)
        return answer.status

    async def _handle(self, payload: object, run: Run) -> None:
        if "failed" in run.job_name and run.token in self._later_tokens:
            raise ValueError("no paper")


async def test_overtaken_runs_neither_die_nor_hold_up_others(world: World) -> None:
    world.handler = worker = ForgottenOwner()
    anyhow, once = OverlapPolicy(policy=OnOverlap.ALLOW), RetryPolicy(max_attempts=1)
    jobs = [
        job
        for name in ("done", "failed")
        for job in await world.register_many(["* * * * * *"] * 10, name, overlap=anyhow, retry=once)
    ]
    shard = world.start("a")
    await world.advance(20.5)
    assert worker.statuses.count(425) >= 10 * len(FORGOTTEN)
    assert not any(shard.vitals.dispatch.breaker_transitions.values())
    on_time = [
        at_s - (callback.key.due_us - START_US) / SECOND
        for at_s, callback in world.arrived
        if callback.attempt == 1
    ]
    assert on_time == [pytest.approx(0, abs=0.1)] * len(on_time)

    await world.kill("a")
    for row in world.store._tables.partitions:
        row.epoch += 2_000  # as high as if the database had forgotten nothing
    world.start("b")
    await world.advance(120)
    overtaken = [
        run
        for job in jobs
        for run in await world.runs(job)
        if (run.due_us - START_US) // SECOND in FORGOTTEN
    ]
    assert len(overtaken) == 20 * len(FORGOTTEN)
    assert {run.state for run in overtaken} == {RunState.SUCCEEDED}
    assert {run.key for run in overtaken} <= set(worker.performed)
