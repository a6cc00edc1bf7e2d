"""Lists shards: leases and partitions from the database, load as reported by the shards.

Invariant: every partition appears exactly once, under its owner or among the free ones. Only
operators see the addresses of shards.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from msgspec import UNSET

from wheelsched.api.environment import Environment, ShardStatus
from wheelsched.api.http.operation import ApiResponse, Call, NoQuery, Operation
from wheelsched.ports import LeaseStore, OpenBreaker, ShardView
from wheelsched.wire.instant import instant, instant_or_none
from wheelsched.wire.shard import BreakerAnswer, ShardAnswer, ShardsAnswer
from wheelsched.wire.tenant import Scope

MAX_BREAKERS: Final = 100  # per shard


class Shards:
    """`GET /shards`."""

    def __init__(self, leases: LeaseStore, environment: Environment) -> None:
        self._leases = leases
        self._fetch_status = environment.fetch_shard_status

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="GET",
                path="/shards",
                summary="List the shards and their partitions",
                scope=Scope.READ,
                handle=self.list_shards,
                response=ShardsAnswer,
            ),
        )

    async def list_shards(self, call: Call[NoQuery, None]) -> ApiResponse:
        survey = await self._leases.survey()
        owned: defaultdict[UUID | None, list[int]] = defaultdict(list)
        for ownership in survey.partitions:
            owned[ownership.owner].append(ownership.partition)
        breakers = await self._leases.read_breakers()
        statuses = await asyncio.gather(*map(self._status_of, survey.shards))
        items = [
            ShardAnswer(
                shard_id=shard.shard_id,
                address=shard.address if call.is_operator else UNSET,
                started_at=instant(shard.started_at_us),
                is_expired=shard.is_expired,
                renewals=shard.renewals,
                partitions=owned[shard.shard_id],
                lateness_p99_ms=status.lateness_p99_ms,
                armed=status.armed,
                in_flight=status.in_flight,
                unready_partitions=status.unready_partitions,
                went_back_at=instant_or_none(shard.went_back_at_us),
                breakers=_shown(breakers.get(shard.shard_id, ()), call),
            )
            for shard, status in zip(survey.shards, statuses, strict=True)
        ]
        return ApiResponse(body=ShardsAnswer(items=items, free_partitions=owned[None]))

    async def _status_of(self, shard: ShardView) -> ShardStatus:
        """The shard's own report. An expired shard is not asked: its address may be dead or
        reused."""
        if shard.address is None or shard.is_expired:
            return ShardStatus()
        return await self._fetch_status(shard.address)


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
