"""Whatever workers, shards and links do: credits are conserved, and no run is lost."""

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.desks import TENANT, MemoryDesk, MemoryShard, queue_run

from wheelsched.core.outcome import Outcome
from wheelsched.delivery.queue.distributor import Distributor, WorkerSubscription
from wheelsched.errors import LinkLost
from wheelsched.ports.work import (
    Attempted,
    Desks,
    Held,
    Pool,
    QueueRun,
    Receipt,
    Receiver,
    Reported,
    Waiting,
    WorkerOutcome,
)
from wheelsched.testing import VirtualClock

QUEUES = [("billing",), ("billing", "mail"), ("mail",)]
KINDS = [
    *("subscribe", "ask", "withdraw", "give_back"),  # workers
    *("add", "tell", "cut", "join", "deliver"),  # shards and links
    "tick",
]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, 7),
        st.integers(0, 7),
    ),
    max_size=60,
)


class NoReports:
    async def finish(self, _: UUID, outcomes: Sequence[WorkerOutcome]) -> list[Reported]:
        return [Reported(is_accepted=False) for _ in outcomes]

    async def heartbeat(
        self, _: UUID, attempts: Sequence[Attempted], __: Sequence[int | None]
    ) -> list[Held]:
        return [Held(is_held=False) for _ in attempts]


class SlowLink:
    """`Desks` over a connection in memory: messages wait in both directions until delivered."""

    def __init__(self, shard: MemoryShard) -> None:
        self._shard = shard
        self._to_shard: list[Callable[[], object]] = []
        self._from_shard: list[Callable[[], object]] = []
        self.is_cut = False
        self.desk: MemoryDesk

    def open(self, receiver: Receiver) -> "SlowDesk":
        self._receiver = receiver
        self.desk = self._shard.open(self)
        return SlowDesk(self)

    def to_shard(self, call: Callable[[], object]) -> None:
        self._to_shard.append(call)

    def deliver(self, most: int) -> None:
        """Delivers some messages in each direction, in order."""
        for direction in (self._to_shard, self._from_shard):
            for _ in range(min(most, len(direction))):
                direction.pop(0)()

    def cut(self) -> None:
        """Everything on its way is lost."""
        self.is_cut = True
        self._to_shard.clear()
        self._from_shard.clear()
        self.desk.close()

    @property
    def is_idle(self) -> bool:
        return not self._to_shard and not self._from_shard

    # The `Receiver` of the desk at the shard.

    def hand_out(self, pool: Pool, runs: Sequence[QueueRun], until_us: int) -> None:
        self._from_shard.append(lambda: self._receiver.hand_out(pool, runs, until_us))

    def cancel(self, attempts: Sequence[Attempted]) -> None:
        self._from_shard.append(lambda: self._receiver.cancel(attempts))

    def wait(self, tenant_id: UUID, queue: str, count: int) -> None:
        self._from_shard.append(lambda: self._receiver.wait(tenant_id, queue, count))

    def returned(self, returned: Callable[[int], None], found: int) -> None:
        self._from_shard.append(lambda: returned(found))


class SlowDesk:
    """`Desk` at the near end of a `SlowLink`."""

    def __init__(self, link: SlowLink) -> None:
        self._link = link

    def lend(self, pool: Pool, count: int) -> None:
        self._link.to_shard(lambda: self._link.desk.lend(pool, count))

    def recall(self, pool: Pool, count: int, returned: Callable[[int], None]) -> None:
        self._link.to_shard(
            lambda: self._link.desk.recall(
                pool, count, lambda found: self._link.returned(returned, found)
            )
        )

    def forget(self, pool: Pool) -> None:
        self._link.to_shard(lambda: self._link.desk.forget(pool))

    async def finish(self, outcomes: Sequence[tuple[Attempted, Outcome]]) -> list[Receipt]:
        if self._link.is_cut:
            raise LinkLost
        return await self._link.desk.finish(outcomes)

    def give_back(self, attempts: Sequence[Attempted]) -> None:
        self._link.to_shard(lambda: self._link.desk.give_back(attempts))

    async def waiting(self, tenant_id: UUID) -> list[Waiting]:
        return await self._link.desk.waiting(tenant_id)

    def pause(self) -> None:
        raise NotImplementedError

    def resume(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._link.cut()


class Member:
    """A worker that fails the test if it gets more than it asked for."""

    def __init__(self, distributor: Distributor, queues: Sequence[str]) -> None:
        self.queues = queues
        self.asked = 0
        self.runs: list[QueueRun] = []
        self.has_left = False
        self.subscription: WorkerSubscription = distributor.subscribe(
            TENANT, queues, self.take, lambda _: None
        )

    def take(self, runs: Sequence[QueueRun], until_us: int) -> None:
        assert not self.has_left
        self.asked -= len(runs)
        assert self.asked >= 0
        assert all(run.queue in self.queues for run in runs)
        self.runs += runs

    def ask(self, count: int) -> None:
        self.asked += count
        self.subscription.add_credits(count)


class World:
    """Two shards with slow links that may be cut, and workers that come and go."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.distributor = Distributor(NoReports(), self.clock)
        self.shards = [MemoryShard(is_lazy=True), MemoryShard(is_lazy=True)]
        self.links: list[tuple[SlowLink, Callable[[], None]] | None] = [None, None]
        self.members: list[Member] = []
        self.leaving: list[asyncio.Future[None]] = []
        self.added = 0
        self.ticks = 0
        self.lost: set[Attempted] = (
            set()
        )  # handed out over a link that was cut, or held for too long
        for place in range(2):
            self.join(place)
            self.members.append(Member(self.distributor, QUEUES[place]))

    async def step(self, what: str, which: int, count: int) -> None:
        members = [member for member in self.members if not member.has_left]
        if what == "tick":
            self.ticks += 1
            await self.clock.advance(1_000_000_000)
        elif what == "subscribe":
            self.members.append(Member(self.distributor, QUEUES[which % len(QUEUES)]))
        elif what in ("ask", "withdraw", "give_back") and members:
            self.step_of(members[which % len(members)], what, count)
        else:
            self.step_at(which % 2, what, which, count)
        await self.clock.run_ready()

    def step_of(self, member: Member, what: str, count: int) -> None:
        """What a worker does."""
        match what:
            case "ask":
                member.ask(count)
            case "withdraw":
                self.leaving.append(asyncio.ensure_future(self.leave(member)))
            case "give_back":
                self.give_back(member, count)

    def step_at(self, place: int, what: str, which: int, count: int) -> None:
        """What happens at a shard, or on the way there."""
        match what:
            case "add":
                self.added += count
                queue = "billing" if which < 4 else "mail"
                self.shards[place].add(*(queue_run(queue) for _ in range(count)))
            case "tell":
                self.shards[place].tell()
            case "cut":
                self.cut(place)
            case "join" if self.links[place] is None:
                self.join(place)
            case "deliver" if (found := self.links[place]) is not None:
                found[0].deliver(count)

    async def leave(self, member: Member) -> None:
        await member.subscription.withdraw()
        member.has_left = True

    def give_back(self, member: Member, count: int) -> None:
        ended, member.runs = member.runs[:count], member.runs[count:]
        self.distributor.give_back(TENANT, [run.attempt for run in ended])
        if self.ticks >= 30:
            self.lost.update(run.attempt for run in ended)

    def join(self, place: int) -> None:
        link = SlowLink(self.shards[place])
        desks: Desks = link
        self.links[place] = link, self.distributor.attach(desks)

    def cut(self, place: int) -> None:
        if (found := self.links[place]) is not None:
            link, detach = found
            self.lost |= self.shards[place].handed_out.keys()
            link.cut()
            detach()
            self.links[place] = None

    def check_credits(self) -> None:
        """A shard never has more unused credits than were lent to it over this link."""
        for shard in self.shards:
            assert len(shard.desks) <= 1
            for desk in shard.desks:
                assert all(number >= 0 for number in desk.credits.values())

    async def calm(self) -> None:
        """All links work, and everything on its way arrives."""
        for place in range(2):
            if self.links[place] is None:
                self.join(place)
        for _ in range(1_000):
            await self.clock.run_ready()
            links = [found[0] for found in self.links if found is not None]
            for shard in self.shards:
                shard.tell()
            if all(link.is_idle for link in links):
                break
            for link in links:
                link.deliver(1_000)
        else:
            raise AssertionError("credits and runs move for ever")

    def held(self) -> list[QueueRun]:
        return [run for member in self.members for run in member.runs]


@settings(deadline=None)
@given(STEPS)
def test_credits_are_conserved_and_no_run_is_lost(steps: list[tuple[str, int, int]]) -> None:
    async def play() -> None:
        world = World()
        ticking = asyncio.ensure_future(world.distributor.run())
        for step in steps:
            await world.step(*step)
            world.check_credits()
        await world.calm()
        await asyncio.gather(*world.leaving)
        await world.clock.advance(2_000_000_000)
        await world.calm()
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
        judge(world)

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(play())


def judge(world: World) -> None:
    staying = [member for member in world.members if not member.has_left]
    unused = sum(member.asked for member in staying)
    lent = sum(desk.credits.total() for shard in world.shards for desk in shard.desks)
    assert lent == unused
    held = {run.attempt for run in world.held()}
    handed_out = {attempt for shard in world.shards for attempt in shard.handed_out}
    waiting = [run for shard in world.shards for _, run in shard.waiting]
    assert held <= handed_out
    assert handed_out - held <= world.lost
    assert len(handed_out) + len(waiting) == world.added
    for run in waiting:  # nobody who could take it has a credit
        assert not any(member.asked and run.queue in member.queues for member in staying)
