"""A shard in a process of its own, for the tests: `python shard_process.py DATABASE_URL TERMS`."""

import sys
from unittest.mock import patch

import msgspec
import uvloop
from msgspec import Struct

from wheelsched.config import DispatchConfig, EgressConfig, LinkConfig, ShardConfig, StoreConfig
from wheelsched.core import lease
from wheelsched.daemon.shard import ShardDaemonConfig, run_shard
from wheelsched.logs import write_logs


class Terms(Struct, frozen=True, kw_only=True):
    """How long a shard may be silent, as JSON. Longer terms make a test independent of speed."""

    ttl_us: int = ShardConfig().lease_ttl_us
    gone_us: int = lease.GONE_US


if __name__ == "__main__":
    write_logs("warning")
    terms = msgspec.json.decode(sys.argv[2], type=Terms)
    config = ShardDaemonConfig(
        store=StoreConfig(url=sys.argv[1], role="shard"),
        shard=ShardConfig(lease_ttl_us=terms.ttl_us),
        dispatch=DispatchConfig(egress=EgressConfig(allow=("127.0.0.0/8",))),
        link=LinkConfig(),
    )
    with patch.object(lease, "GONE_US", terms.gone_us):
        uvloop.run(run_shard(config))
