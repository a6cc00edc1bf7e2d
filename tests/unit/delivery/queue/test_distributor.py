"""Credits go where runs wait, runs go to workers with credits, and outcomes find their shard."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from tests.desks import TENANT, UNTIL_US, MemoryShard, queue_run

from wheelsched.core.outcome import Failed, Succeeded
from wheelsched.delivery.queue.distributor import Distributor, WorkerSubscription
from wheelsched.ports.work import (
    Attempted,
    Held,
    Pool,
    QueueRun,
    QueueState,
    Reported,
    WorkerOutcome,
)
from wheelsched.testing import VirtualClock

ANOTHER_TENANT = UUID(int=2)
POOL = Pool(TENANT, ("billing",))
WRITTEN = Reported(is_accepted=True, reason="by the database")
SECOND_NS = 1_000_000_000


class MemoryReports:
    """`Reports` that accepts everything."""

    def __init__(self) -> None:
        self.finished: list[tuple[UUID, WorkerOutcome]] = []
        self.beats: list[tuple[UUID, Attempted, int | None]] = []

    async def finish(self, tenant_id: UUID, outcomes: Sequence[WorkerOutcome]) -> list[Reported]:
        self.finished += [(tenant_id, outcome) for outcome in outcomes]
        return [WRITTEN for _ in outcomes]

    async def heartbeat(
        self, tenant_id: UUID, attempts: Sequence[Attempted], leases_us: Sequence[int | None]
    ) -> list[Held]:
        beats = zip(attempts, leases_us, strict=True)
        self.beats += [(tenant_id, attempt, lease_us) for attempt, lease_us in beats]
        return [Held(is_held=True) for _ in attempts]


class PullingWorker:
    """A worker that keeps what it gets."""

    def __init__(
        self, distributor: Distributor, *queues: str, tenant_id: UUID = TENANT, asked: int = 0
    ) -> None:
        self.runs: list[QueueRun] = []
        self.cancelled: list[Attempted] = []
        self.subscription: WorkerSubscription = distributor.subscribe(
            tenant_id, queues or ("billing",), self._take, self.cancelled.extend
        )
        self.ask(asked)

    def _take(self, runs: Sequence[QueueRun], until_us: int) -> None:
        assert until_us == UNTIL_US
        self.runs += runs

    def ask(self, count: int) -> None:
        self.subscription.add_credits(count)


class Cluster:
    """A distributor on a virtual clock, and shards in memory."""

    def __init__(self, shards: int) -> None:
        self.clock = VirtualClock()
        self.reports = MemoryReports()
        self.distributor = Distributor(self.reports, self.clock)
        self.shards = [MemoryShard() for _ in range(shards)]
        self.detach = [self.distributor.attach(shard) for shard in self.shards]

    def lent(self, pool: Pool = POOL) -> list[int]:
        return [sum(desk.credits[pool] for desk in shard.desks) for shard in self.shards]

    async def settle(self, seconds: float = 0) -> None:
        await self.clock.advance(int(seconds * SECOND_NS))

    def lose(self, number: int) -> None:
        """The link to a shard is lost."""
        self.detach[number]()
        for desk in tuple(self.shards[number].desks):
            desk.close()


@asynccontextmanager
async def cluster(shards: int) -> AsyncIterator[Cluster]:
    made = Cluster(shards)
    running = asyncio.ensure_future(made.distributor.run())
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_each_shard_gets_an_equal_part() -> None:
    async with cluster(3) as world:
        PullingWorker(world.distributor, asked=10)
        PullingWorker(world.distributor, asked=2)
        await world.settle()
        assert world.lent() == [4, 4, 4]


async def test_a_run_goes_at_once_to_a_worker_with_a_credit() -> None:
    async with cluster(2) as world:
        worker = PullingWorker(world.distributor, asked=4)
        await world.settle()
        run = queue_run()
        world.shards[1].add(run)
        assert worker.runs == [run]


async def test_a_worker_gets_no_more_than_it_asked_for() -> None:
    async with cluster(2) as world:
        worker = PullingWorker(world.distributor, asked=3)
        for shard in world.shards:
            shard.add(*(queue_run() for _ in range(10)))
        await world.settle(5)
        assert len(worker.runs) == 3
        worker.ask(2)
        await world.settle()
        assert len(worker.runs) == 5


async def test_the_only_credit_goes_to_the_shard_where_a_run_waits() -> None:
    for number in range(4):
        async with cluster(4) as world:
            worker = PullingWorker(world.distributor, asked=1)
            await world.settle()
            world.shards[number].add(queue_run())
            await world.settle()
            assert len(worker.runs) == 1


async def test_runs_that_wait_already_are_found_by_a_new_worker() -> None:
    async with cluster(4) as world:
        world.shards[2].add(queue_run(), queue_run())
        await world.settle(5)
        worker = PullingWorker(world.distributor, asked=2)
        await world.settle()
        assert len(worker.runs) == 2


async def test_a_run_waits_after_another_that_was_handed_out_before_the_shard_told() -> None:
    """The shard tells 1, and then nothing, because it is 1 again."""
    for number in range(2):
        async with cluster(2) as world:
            worker = PullingWorker(world.distributor)
            await world.settle()
            shard = world.shards[number]
            shard.is_lazy = True
            shard.add(queue_run())
            shard.tell()
            await world.settle()
            worker.ask(1)
            await world.settle()
            shard.add(queue_run())
            shard.tell()
            worker.ask(1)
            await world.settle()
            assert len(worker.runs) == 2


async def test_runs_are_spread_over_the_workers() -> None:
    async with cluster(1) as world:
        workers = [PullingWorker(world.distributor, asked=10) for _ in range(4)]
        await world.settle()
        world.shards[0].add(*(queue_run() for _ in range(8)))
        assert [len(worker.runs) for worker in workers] == [2, 2, 2, 2]
        for _ in range(4):
            world.shards[0].add(queue_run())
        assert [len(worker.runs) for worker in workers] == [3, 3, 3, 3]


async def test_a_run_goes_only_to_workers_of_its_tenant_and_queue() -> None:
    async with cluster(1) as world:
        wrong = [
            PullingWorker(world.distributor, "reports", asked=5),
            PullingWorker(world.distributor, "billing", tenant_id=ANOTHER_TENANT, asked=5),
        ]
        await world.settle()
        world.shards[0].add(queue_run())
        await world.settle(5)
        assert not any(worker.runs for worker in wrong)
        right = PullingWorker(world.distributor, "reports", "billing", asked=1)
        await world.settle()
        assert len(right.runs) == 1


async def test_two_shards_with_a_backlog_share_the_credits() -> None:
    async with cluster(2) as world:
        worker = PullingWorker(world.distributor)
        for shard in world.shards:
            shard.add(*(queue_run() for _ in range(50)))
        for _ in range(40):
            worker.ask(1)
            await world.settle()
        waiting = [len(shard.waiting) for shard in world.shards]
        assert sum(waiting) == 60
        assert max(waiting) - min(waiting) <= 2


async def test_the_parts_are_equal_again_after_a_backlog() -> None:
    async with cluster(2) as world:
        worker = PullingWorker(world.distributor, asked=10)
        await world.settle()
        world.shards[0].add(*(queue_run() for _ in range(10)))
        await world.settle()
        assert len(worker.runs) == 10
        worker.ask(10)
        await world.settle(2)
        assert world.lent() == [5, 5]


async def test_a_new_shard_gets_its_part() -> None:
    async with cluster(1) as world:
        PullingWorker(world.distributor, asked=10)
        await world.settle()
        world.shards.append(MemoryShard())
        world.distributor.attach(world.shards[1])
        await world.settle(2)
        assert world.lent() == [5, 5]


async def test_credits_of_a_lost_shard_go_to_the_others() -> None:
    async with cluster(2) as world:
        PullingWorker(world.distributor, asked=10)
        await world.settle()
        world.lose(0)
        await world.settle()
        assert world.lent()[1] == 10


async def test_all_credits_come_back_when_a_worker_withdraws() -> None:
    async with cluster(3) as world:
        worker = PullingWorker(world.distributor, asked=10)
        stays = PullingWorker(world.distributor, asked=3)
        await world.settle()
        await worker.subscription.withdraw()
        assert sum(world.lent()) == 3
        world.shards[0].add(*(queue_run() for _ in range(5)))
        await world.settle()
        assert not worker.runs
        assert len(stays.runs) == 3


async def test_a_run_for_a_worker_that_has_gone_goes_back() -> None:
    async with cluster(1) as world:
        worker = PullingWorker(world.distributor, asked=1)
        await world.settle()
        shard, run = world.shards[0], queue_run()
        (desk,) = shard.desks
        await worker.subscription.withdraw()
        shard.handed_out[run.attempt] = TENANT, run
        desk.receiver.hand_out(POOL, [run], UNTIL_US)  # it was on its way
        assert not worker.runs
        assert shard.given_back == 1
        other = PullingWorker(world.distributor, asked=1)
        await world.settle()
        assert other.runs == [run]


async def test_a_worker_that_withdraws_gets_what_is_on_its_way() -> None:
    async with cluster(1) as world:
        worker = PullingWorker(world.distributor, asked=1)
        await world.settle()
        (desk,) = world.shards[0].desks
        recalls: list[tuple[int, object]] = []
        desk.recall = lambda _, count, returned: recalls.append((count, returned))  # type: ignore[method-assign, assignment]
        withdrawing = asyncio.ensure_future(worker.subscription.withdraw())
        await world.settle()
        assert not withdrawing.done()
        run = queue_run()
        world.shards[0].add(run)
        await withdrawing
        assert worker.runs == [run]


async def test_a_run_that_a_worker_fails_to_take_goes_back() -> None:
    async with cluster(1) as world:

        def fail(*_: object) -> None:
            raise RuntimeError("the connection is closed")

        subscription = world.distributor.subscribe(TENANT, ["billing"], fail, fail)
        subscription.add_credits(1)
        await world.settle()
        world.shards[0].add(queue_run())
        assert world.shards[0].given_back == 1


async def test_a_pool_without_workers_is_forgotten() -> None:
    async with cluster(1) as world:
        worker = PullingWorker(world.distributor, asked=1)
        await world.settle()
        (desk,) = world.shards[0].desks
        assert desk.pools
        await worker.subscription.withdraw()
        await world.settle(60)
        assert not desk.pools
        again = PullingWorker(world.distributor, asked=1)
        world.shards[0].add(queue_run())
        await world.settle()
        assert len(again.runs) == 1


async def test_an_outcome_goes_to_the_shard_that_handed_out_the_run() -> None:
    async with cluster(2) as world:
        worker = PullingWorker(world.distributor, asked=2)
        await world.settle()
        first, second = queue_run(), queue_run()
        world.shards[0].add(first)
        world.shards[1].add(second)
        failed = Failed(error="no")
        answers = await world.distributor.finish(
            TENANT,
            [
                WorkerOutcome(attempt=second.attempt, outcome=failed),
                WorkerOutcome(attempt=first.attempt, outcome=Succeeded()),
            ],
        )
        assert answers == [Reported(is_accepted=True)] * 2
        assert world.shards[0].finished == {first.attempt: Succeeded()}
        assert world.shards[1].finished == {second.attempt: failed}
        assert not world.reports.finished
        assert len(worker.runs) == 2


async def test_an_outcome_is_written_to_the_database_when_the_shard_cannot() -> None:
    async with cluster(2) as world:
        PullingWorker(world.distributor, asked=4)
        await world.settle()
        lost, forgotten, unknown = queue_run(), queue_run(), queue_run()
        world.shards[0].add(lost)
        world.shards[1].add(forgotten)
        world.lose(0)
        world.shards[1].handed_out.clear()  # it has a new lease
        outcomes = [
            WorkerOutcome(attempt=run.attempt, outcome=Succeeded())
            for run in (lost, forgotten, unknown)
        ]
        assert await world.distributor.finish(TENANT, outcomes) == [WRITTEN] * 3
        assert world.reports.finished == [(TENANT, outcome) for outcome in outcomes]


async def test_an_outcome_whose_link_is_lost_meanwhile_is_written_to_the_database() -> None:
    async with cluster(1) as world:
        PullingWorker(world.distributor, asked=1)
        await world.settle()
        run = queue_run()
        world.shards[0].add(run)
        for desk in tuple(world.shards[0].desks):
            desk.close()  # nobody has noticed yet
        outcome = WorkerOutcome(attempt=run.attempt, outcome=Succeeded())
        assert await world.distributor.finish(TENANT, [outcome]) == [WRITTEN]


async def test_a_stale_outcome_is_not_accepted() -> None:
    async with cluster(1) as world:
        PullingWorker(world.distributor, asked=1)
        await world.settle()
        run = queue_run()
        world.shards[0].add(run)
        world.shards[0].finish(run.attempt, Succeeded())
        outcome = WorkerOutcome(attempt=run.attempt, outcome=Succeeded())
        (answer,) = await world.distributor.finish(TENANT, [outcome])
        assert not answer.is_accepted
        assert answer.reason


async def test_a_tenant_cannot_end_or_give_back_runs_of_another() -> None:
    async with cluster(1) as world:
        worker = PullingWorker(world.distributor, asked=1)
        await world.settle()
        run = queue_run()
        world.shards[0].add(run)
        world.distributor.give_back(ANOTHER_TENANT, [run.attempt])
        assert not world.shards[0].given_back
        outcome = WorkerOutcome(attempt=run.attempt, outcome=Succeeded())
        await world.distributor.finish(ANOTHER_TENANT, [outcome])
        assert not world.shards[0].finished
        assert world.reports.finished == [(ANOTHER_TENANT, outcome)]  # its rows are not visible
        assert len(worker.runs) == 1


async def test_a_worker_gives_back_what_it_has_not_begun() -> None:
    async with cluster(1) as world:
        PullingWorker(world.distributor, asked=1)
        await world.settle()
        run = queue_run()
        world.shards[0].add(run)
        world.distributor.give_back(TENANT, [run.attempt, queue_run().attempt])
        assert world.shards[0].given_back == 1


async def test_a_cancelled_run_is_told_to_the_worker_that_has_it() -> None:
    async with cluster(1) as world:
        workers = [PullingWorker(world.distributor, asked=1) for _ in range(2)]
        await world.settle()
        run = queue_run()
        world.shards[0].add(run)
        (desk,) = world.shards[0].desks
        desk.receiver.cancel([run.attempt, queue_run().attempt])
        for worker in workers:
            assert worker.cancelled == [each.attempt for each in worker.runs]


async def test_heartbeats_go_to_the_database_and_keep_the_run_in_mind() -> None:
    async with cluster(1) as world:
        PullingWorker(world.distributor, asked=2)
        await world.settle()
        kept, forgotten = queue_run(), queue_run()
        world.shards[0].add(kept, forgotten)
        for _ in range(10):
            await world.settle(20)
            await world.distributor.heartbeat(TENANT, [kept.attempt], [30_000_000])
        assert world.reports.beats[0] == (TENANT, kept.attempt, 30_000_000)
        outcomes = [
            WorkerOutcome(attempt=run.attempt, outcome=Succeeded()) for run in (kept, forgotten)
        ]
        await world.distributor.finish(TENANT, outcomes)
        assert world.shards[0].finished == {kept.attempt: Succeeded()}
        assert [outcome.attempt for _, outcome in world.reports.finished] == [forgotten.attempt]


async def test_queues_are_counted_over_all_shards() -> None:
    async with cluster(2) as world:
        PullingWorker(world.distributor, "billing", "mail", asked=3)
        PullingWorker(world.distributor, "mail", tenant_id=ANOTHER_TENANT, asked=1)
        await world.settle()
        for shard in world.shards:
            shard.add(queue_run("reports"), queue_run("reports"))
        world.shards[1].add(queue_run("reports"), tenant_id=ANOTHER_TENANT)
        assert await world.distributor.queues(TENANT) == [
            QueueState(queue="billing", depth=0, workers=1, credits=3),
            QueueState(queue="mail", depth=0, workers=1, credits=3),
            QueueState(queue="reports", depth=4, oldest_us=1_000),
        ]


async def test_a_desk_is_told_of_many_credits_at_once() -> None:
    async with cluster(1) as world:
        workers = [PullingWorker(world.distributor) for _ in range(100)]
        await world.settle()
        (desk,) = world.shards[0].desks
        calls: list[int] = []
        lend = desk.lend

        def count(pool: Pool, number: int) -> None:
            calls.append(number)
            lend(pool, number)

        desk.lend = count  # type: ignore[method-assign, assignment]
        for worker in workers:
            worker.ask(1)
        await world.settle()
        assert calls == [100]
