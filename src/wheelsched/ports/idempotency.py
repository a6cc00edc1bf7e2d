"""Requests by their Idempotency-Key, so that one that is sent again is not done again.

Invariant: a key has one answer, the first that was kept.
"""

from typing import Protocol

from msgspec import Struct

from wheelsched.ports.tenants import Caller


class KeptAnswer(Struct, frozen=True, kw_only=True):
    """What a request was answered."""

    status: int
    headers: dict[str, str]
    body: bytes


class KeyedRequest(Struct, frozen=True, kw_only=True):
    """What is known of an Idempotency-Key: the request that it came with first.

    With an answer it is done. With a ticket it is the caller's to do, as of its beginning; without
    either somebody else is at it.
    """

    digest: bytes
    begun_at_us: int
    answer: KeptAnswer | None = None
    ticket: int | None = None


class IdempotencyStore(Protocol):
    """Requests of one tenant by the key that their sender gave them, kept for a day."""

    async def begin(
        self, caller: Caller, key: str, digest: bytes, patience_us: int
    ) -> KeyedRequest:
        """Notes that a request is being answered, unless it was, or is.

        Who has been at it for longer than the patience is taken for dead.
        """

    async def keep(self, caller: Caller, key: str, answer: KeptAnswer) -> None:
        """Keeps the answer, the first that there is."""

    async def give_back(self, caller: Caller, key: str, ticket: int) -> None:
        """Lets the next sending do it, as of the same beginning."""

    async def forget(self, caller: Caller, key: str, ticket: int) -> None:
        """Lets the key be as if it had never come."""
