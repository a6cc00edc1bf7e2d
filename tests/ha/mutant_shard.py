"""`wheelsched shard` without a rule that a failover needs: `mutant_shard.py RULE shard …`.

Each is what the judge must notice.
"""

import asyncio
import re
import sys
from collections.abc import Callable
from unittest.mock import patch

from wheelsched.cli import main
from wheelsched.ports import Lease, Renewal
from wheelsched.shard.ownership import ownership
from wheelsched.store.for_shard import leases
from wheelsched.store.for_shard.leases import PostgresLeases


def unchecked_renewals() -> None:
    """A renewal is taken for one of the same lease, however many there were before."""
    renew = PostgresLeases.renew

    async def renew_any(self: PostgresLeases, lease: Lease, ttl_us: int, _: int = 0) -> Renewal:
        return await renew(self, lease, ttl_us)

    patch.object(PostgresLeases, "renew", renew_any).start()
    patch.object(ownership, "is_from_the_past", lambda *_: False).start()


def epoch_from_the_table() -> None:
    """An epoch is one more than the last that the table knows of."""
    greatest = re.compile(r"greatest\(\s*epoch \+ 1,.*?\n {8}\)", re.DOTALL)
    sql, count = greatest.subn("epoch + 1", leases.QUERIES["acquire"])
    assert count == 1, "the statement has changed: adapt the mutant"
    patch.dict(leases.QUERIES, acquire=sql).start()


def trust_without_connection() -> None:
    """A lease is trusted for its time, whatever becomes of its connection."""

    async def wait_disconnected(_: PostgresLeases) -> None:
        await asyncio.Event().wait()

    patch.object(PostgresLeases, "is_connected", lambda _: True).start()
    patch.object(PostgresLeases, "wait_disconnected", wait_disconnected).start()


MUTANTS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (unchecked_renewals, epoch_from_the_table, trust_without_connection)
}

if __name__ == "__main__":
    MUTANTS[sys.argv.pop(1)]()
    main()
