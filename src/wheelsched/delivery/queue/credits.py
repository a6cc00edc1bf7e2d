"""The credits of all pools, and what the shards have borrowed of them.

Invariant: over time, no more is lent than the workers have given. Every pool is known to every
shard, so that a shard without a credit can say that runs wait.

All changes of one iteration of the loop are balanced together in the next: 10,000 workers that
return a credit each cause one message to each shard.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

from wheelsched.delivery.queue.loans import Loan, level_again, next_turn, spread
from wheelsched.delivery.queue.workers import Borrower, Workers
from wheelsched.ports.work import Pool

IDLE_TICKS: Final = 10  # after which a pool without workers is forgotten


class Credits:
    """Lends the credits of workers to shards."""

    def __init__(self) -> None:
        self.borrowers: dict[Borrower, None] = {}  # in order, so that a simulation repeats
        self._pools: dict[Pool, Workers] = {}
        self._by_queue: dict[tuple[UUID, str], dict[Workers, None]] = {}
        self._unbalanced: dict[Workers, None] = {}
        self._withdrawn: dict[Workers, list[asyncio.Future[None]]] = {}
        self._overdue: list[asyncio.Future[None]] = []  # since the last tick
        self._turns = 0

    def pools(self, tenant_id: UUID | None = None) -> Iterator[Workers]:
        """The pools of a tenant, or of all."""
        for pool, workers in self._pools.items():
            if tenant_id is None or pool.tenant_id == tenant_id:
                yield workers

    def find(self, pool: Pool) -> Workers | None:
        return self._pools.get(pool)

    def open(self, pool: Pool) -> Workers:
        """The workers of a pool, which becomes known to all shards."""
        workers = self._pools.get(pool)
        if workers is None:
            workers = self._pools[pool] = Workers(pool)
            self._turns += 1
            workers.turn = self._turns  # small pools begin at different shards
            for queue in pool.queues:
                self._by_queue.setdefault((pool.tenant_id, queue), {})[workers] = None
        self.balance_soon(workers)
        return workers

    def add(self, borrower: Borrower) -> None:
        self.borrowers[borrower] = None
        self.balance_soon(*self._pools.values())

    def remove(self, borrower: Borrower) -> None:
        """The shard is gone, and what it had borrowed is free again."""
        self.borrowers.pop(borrower, None)
        borrower.is_open = False
        for workers in self._pools.values():
            if (loan := workers.loans.pop(borrower, None)) is not None:
                loan.is_void = True
        self.balance_soon(*self._pools.values())

    def use(self, borrower: Borrower, pool: Pool, count: int) -> None:
        """The shard has used credits.

        The number of its waiting runs is the one it reported last: it reports only changes.
        """
        workers = self._pools.get(pool)
        if workers is None:
            return
        if (loan := workers.loans.get(borrower)) is not None:
            loan.lent = max(0, loan.lent - count)
        if workers in self._withdrawn:
            self.balance_soon(workers)

    def wait(self, borrower: Borrower, tenant_id: UUID, queue: str, count: int) -> None:
        """The shard has this many runs that wait for a credit."""
        self._set_waiting(borrower, tenant_id, queue, count)
        self.balance_soon(*self._by_queue.get((tenant_id, queue), ()))

    async def until_returned(self, workers: Workers) -> None:
        """Returns when no more is lent than the workers have, or with the second tick."""
        if workers.is_overlent:
            self.balance_soon(workers)
            returned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._withdrawn.setdefault(workers, []).append(returned)
            await returned

    def tick(self) -> None:
        """Every second: forgets pools without workers, and makes the parts equal again."""
        _resolve(self._overdue)
        self._overdue = [future for futures in self._withdrawn.values() for future in futures]
        for workers in tuple(self._pools.values()):
            if workers.members:
                workers.idle_ticks = 0
                self._level(workers)
            elif workers.idle_ticks >= IDLE_TICKS and not workers.lent:
                self._forget(workers)
            else:
                workers.idle_ticks += 1

    def balance_soon(self, *pools: Workers) -> None:
        """Balances pools in the next iteration of the loop."""
        if pools and not self._unbalanced:
            asyncio.get_running_loop().call_soon(self._balance)
        self._unbalanced.update(dict.fromkeys(pools))

    def _balance(self) -> None:
        pools, self._unbalanced = self._unbalanced, {}
        for workers in pools:
            if self._pools.get(workers.pool) is workers:
                self._make_known(workers)
                self._move(workers)
            if not workers.is_overlent:
                _resolve(self._withdrawn.pop(workers, ()))

    def _make_known(self, workers: Workers) -> None:
        for borrower in tuple(self.borrowers):
            if borrower not in workers.loans:
                workers.loans[borrower] = Loan()
                workers.loans[borrower].waiting = sum(
                    borrower.waiting.get((workers.pool.tenant_id, queue), 0)
                    for queue in workers.pool.queues
                )
                borrower.desk.lend(workers.pool, 0)

    def _move(self, workers: Workers) -> None:
        loans = tuple(workers.loans.items())
        if not loans:
            return
        moves = spread(workers.total, [loan for _, loan in loans], workers.turn)
        workers.turn = next_turn(moves, workers.turn)
        for (borrower, loan), lend, recall in zip(loans, *moves, strict=True):
            if lend and not loan.is_void:
                loan.lent += lend
                borrower.desk.lend(workers.pool, lend)
            if recall and not loan.is_void:
                self._recall(borrower, workers, recall)

    def _recall(self, borrower: Borrower, workers: Workers, count: int) -> None:
        loan = workers.loans[borrower]

        def returned(found: int) -> None:
            loan.recalling -= count
            loan.lent = max(0, loan.lent - found)
            if not loan.is_void:
                self.balance_soon(workers)

        loan.recalling += count
        borrower.desk.recall(workers.pool, count, returned)

    def _level(self, workers: Workers) -> None:
        loans = tuple(workers.loans.items())
        excess = level_again(workers.total, [loan for _, loan in loans])
        for (borrower, _), count in zip(loans, excess, strict=True):
            if count and borrower.is_open:
                self._recall(borrower, workers, count)

    def _set_waiting(self, borrower: Borrower, tenant_id: UUID, queue: str, count: int) -> None:
        pools = self._by_queue.get((tenant_id, queue), ())
        known = borrower.waiting.pop((tenant_id, queue), 0)
        if count and pools:
            borrower.waiting[tenant_id, queue] = count
        for workers in pools:
            if (loan := workers.loans.get(borrower)) is not None:
                loan.waiting = max(0, loan.waiting + count - known)

    def _forget(self, workers: Workers) -> None:
        tenant_id = workers.pool.tenant_id
        del self._pools[workers.pool]
        for queue in workers.pool.queues:
            pools = self._by_queue[tenant_id, queue]
            pools.pop(workers, None)
            if not pools:
                del self._by_queue[tenant_id, queue]
                for borrower in self.borrowers:
                    borrower.waiting.pop((tenant_id, queue), None)
        for borrower in workers.loans:
            borrower.desk.forget(workers.pool)


def _resolve(futures: Iterable[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
