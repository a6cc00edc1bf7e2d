"""The store of API requests by Idempotency-Key, so that a retried request is not executed twice.

Invariant: a key has one response, the first one that was stored.
"""

from typing import Protocol

from msgspec import Struct

from wheelsched.ports.tenants import Caller


class KeptAnswer(Struct, frozen=True, kw_only=True):
    """The stored response to a request."""

    status: int
    headers: dict[str, str]
    body: bytes


class KeyedRequest(Struct, frozen=True, kw_only=True):
    """The first request with an Idempotency-Key.

    With an answer, it is done. With a ticket, the caller must execute it, as of `begun_at_us`. With
    neither, another process is executing it.
    """

    digest: bytes
    begun_at_us: int
    answer: KeptAnswer | None = None
    ticket: int | None = None

    @property
    def is_copy(self) -> bool:
        """Whether an earlier copy of the request may have been executed in part."""
        return self.ticket != self.begun_at_us


class IdempotencyStore(Protocol):
    """The requests of one tenant by Idempotency-Key, kept for a day."""

    async def begin(
        self, caller: Caller, key: str, digest: bytes, takeover_after_us: int
    ) -> KeyedRequest:
        """Start a request, unless it is done or being executed.

        A process that has been executing it for longer than `takeover_after_us` is considered dead.
        """

    async def keep(self, caller: Caller, key: str, answer: KeptAnswer) -> None:
        """Store the response, unless there is one."""

    async def give_back(self, caller: Caller, key: str, ticket: int) -> None:
        """Let the next retry execute the request, with the same `begun_at_us`."""

    async def forget(self, caller: Caller, key: str, ticket: int) -> None:
        """Delete the key, as if it had never been used."""
