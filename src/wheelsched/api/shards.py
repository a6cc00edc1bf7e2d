"""Shards: leases and partitions as the database has them, the rest as the shards say themselves.

Invariant: every partition is in one place of the answer, with its owner or among the free ones.
Only operators see the addresses of shards.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from msgspec import UNSET

from wheelsched.api.operation import Answer, Call, NoQuery, Operation
from wheelsched.api.surroundings import Condition, Surroundings
from wheelsched.ports import LeaseStore, OpenBreaker, ShardView
from wheelsched.wire.instant import instant
from wheelsched.wire.shard import BreakerAnswer, ShardAnswer, ShardsAnswer
from wheelsched.wire.tenant import Scope

MAX_BREAKERS: Final = 100  # of one shard


class Shards:
    """`GET /shards`."""

    def __init__(self, leases: LeaseStore, surroundings: Surroundings) -> None:
        self._leases = leases
        self._ask_shard = surroundings.ask_shard

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="GET",
                path="/shards",
                summary="The shards and the partitions that they own",
                scope=Scope.READ,
                handle=self.list_shards,
                answer=ShardsAnswer,
            ),
        )

    async def list_shards(self, call: Call[NoQuery, None]) -> Answer:
        survey = await self._leases.survey()
        owned: defaultdict[UUID | None, list[int]] = defaultdict(list)
        for ownership in survey.partitions:
            owned[ownership.owner].append(ownership.partition)
        breakers = await self._leases.read_breakers()
        conditions = await asyncio.gather(*map(self._condition_of, survey.shards))
        items = [
            ShardAnswer(
                shard_id=shard.shard_id,
                address=shard.address if call.is_operator else UNSET,
                started_at=instant(shard.started_at_us),
                is_expired=shard.is_expired,
                renewals=shard.renewals,
                partitions=owned[shard.shard_id],
                lateness_p99_ms=condition.lateness_p99_ms,
                armed=condition.armed,
                in_flight=condition.in_flight,
                unready_partitions=condition.unready_partitions,
                breakers=_shown(breakers.get(shard.shard_id, ()), call),
            )
            for shard, condition in zip(survey.shards, conditions, strict=True)
        ]
        return Answer(body=ShardsAnswer(items=items, free_partitions=owned[None]))

    async def _condition_of(self, shard: ShardView) -> Condition:
        """Of one whose lease has expired, nobody answers at its address, or somebody else."""
        if shard.address is None or shard.is_expired:
            return Condition()
        return await self._ask_shard(shard.address)


def _shown(breakers: Sequence[OpenBreaker], call: Call[NoQuery, None]) -> list[BreakerAnswer]:
    """The breakers that the caller may see."""
    tenant_id = call.caller.tenant_id
    own = [one for one in breakers if call.is_operator or one.tenant_id == tenant_id]
    return [
        BreakerAnswer(
            kind=one.kind,
            target=one.target,
            job_id=one.job_id,
            opened_at=instant(one.opened_at_us),
            next_probe_at=instant(one.next_probe_at_us),
            error=one.error,
        )
        for one in own[:MAX_BREAKERS]
    ]
