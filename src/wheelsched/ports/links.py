"""The store of links: how processes that hand out runs find the shards and prove who they are.

Invariant: only who can read the database knows a key.
"""

from typing import Final, NamedTuple, Protocol
from uuid import UUID

from msgspec import Struct

# A process publishes its key more often than this, and is forgotten afterwards.
PUBLISHED_US: Final = 60_000_000


class ShardLink(NamedTuple):
    """Where a shard accepts links, and the key with which it proves its id."""

    address: str  # HOST:PORT
    key: bytes


class LinkedShard(Struct, frozen=True):
    """A shard that accepts links."""

    shard_id: UUID
    address: str
    key: bytes


class LinkStore(Protocol):
    """The keys of both ends of all links. A shard publishes its own when it joins."""

    async def publish(self, process_id: UUID, key: bytes) -> None:
        """Publish the key of a process for `PUBLISHED_US`. Forgets processes that have gone."""

    async def withdraw(self, process_id: UUID) -> None:
        """Forget the key of a process that stops."""

    async def key_of(self, process_id: UUID) -> bytes | None:
        """The key of a process; None if it has not published one lately."""

    async def shards(self) -> list[LinkedShard]:
        """All shards that accept links, also those whose lease has expired."""
