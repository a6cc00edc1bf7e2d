"""Fetches the status of shards from their metrics.

Invariant: a fetch takes at most `TIMEOUT_S` and never fails; a shard that does not respond has an
empty status.
"""

from collections.abc import Iterable
from typing import Final

import aiohttp
import structlog
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from wheelsched.api.environment import ShardStatus

log = structlog.get_logger("wheelsched.daemon")

TIMEOUT_S: Final = 1.0
MAX_BYTES: Final = 1 << 20
QUANTILE: Final = 0.99


class ShardStatusClient:
    """Fetches the status of shards over HTTP."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
            connector=aiohttp.TCPConnector(limit=100),
        )

    async def close(self) -> None:
        await self._session.close()

    async def fetch(self, address: str) -> ShardStatus:
        """The status of the shard at an address."""
        try:
            async with self._session.get(f"{address}/metrics", allow_redirects=False) as response:
                text = (await response.content.read(MAX_BYTES)).decode()
                return parse_status(text_string_to_metric_families(text))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            log.info("shard.unreachable", address=address, error=str(error))
            return ShardStatus()


def parse_status(families: Iterable[Metric]) -> ShardStatus:
    """The status of a shard, from its metrics."""
    found = {family.name: family for family in families}
    return ShardStatus(
        lateness_p99_ms=_quantile_ms(found.get("wheelsched_lateness_seconds")),
        armed=_value(found.get("wheelsched_armed_runs")),
        in_flight=_value(found.get("wheelsched_in_flight_runs")),
        unready_partitions=_value(found.get("wheelsched_unready_partitions")),
    )


def _value(gauge: Metric | None) -> int | None:
    return None if gauge is None or not gauge.samples else int(gauge.samples[0].value)


def _quantile_ms(histogram: Metric | None) -> float | None:
    """The upper bound of the bucket that has the quantile; None if there is none."""
    if histogram is None:
        return None
    buckets = sorted(
        (float(sample.labels["le"]), sample.value)
        for sample in histogram.samples
        if sample.name.endswith("_bucket")
    )
    if not buckets or buckets[-1][1] == 0:
        return None
    wanted = QUANTILE * buckets[-1][1]
    bound_s = next(bound_s for bound_s, count in buckets if count >= wanted)
    return None if bound_s == float("inf") else bound_s * 1_000
