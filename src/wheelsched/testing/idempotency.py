"""`IdempotencyStore` in memory. Invariant: like on Postgres, one request gets the ticket."""

from wheelsched.ports import Caller, KeptAnswer, KeyedRequest
from wheelsched.testing.tables import IdempotencyRow, MemoryTables

NEVER_TRIED_US = -(1 << 62)


class MemoryIdempotency:
    """`IdempotencyStore` in memory."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def begin(
        self, caller: Caller, key: str, digest: bytes, takeover_after_us: int
    ) -> KeyedRequest:
        now_us = self._tables.now_us()
        row_key = caller.tenant_id, key
        row = self._tables.idempotency.get(row_key)
        if row is None:
            row = IdempotencyRow(digest, now_us, NEVER_TRIED_US)
            self._tables.idempotency[row_key] = row
        is_free = row.answer is None and row.tried_at_us < now_us - takeover_after_us
        if is_free and row.digest == digest:
            row.tried_at_us = now_us
            return KeyedRequest(digest=digest, begun_at_us=row.begun_at_us, ticket=now_us)
        return KeyedRequest(digest=row.digest, begun_at_us=row.begun_at_us, answer=row.answer)

    async def keep(self, caller: Caller, key: str, answer: KeptAnswer) -> None:
        row = self._tables.idempotency.get((caller.tenant_id, key))
        if row is not None and row.answer is None:
            row.answer = answer

    async def give_back(self, caller: Caller, key: str, ticket: int) -> None:
        row = self._held(caller, key, ticket)
        if row is not None:
            row.tried_at_us = NEVER_TRIED_US

    async def forget(self, caller: Caller, key: str, ticket: int) -> None:
        if self._held(caller, key, ticket) is not None:
            del self._tables.idempotency[caller.tenant_id, key]

    def _held(self, caller: Caller, key: str, ticket: int) -> IdempotencyRow | None:
        row = self._tables.idempotency.get((caller.tenant_id, key))
        if row is None or row.answer is not None or row.tried_at_us != ticket:
            return None
        return row
