"""A shard in a process of its own, for the tests: `python shard_process.py DATABASE_URL`."""

import sys

import uvloop

from wheelsched.config import DispatchConfig, EgressConfig, StoreConfig
from wheelsched.daemon.shard import ShardDaemonConfig, run_shard
from wheelsched.logs import write_logs

if __name__ == "__main__":
    write_logs("warning")
    loopback = DispatchConfig(egress=EgressConfig(allow=("127.0.0.0/8",)))
    store = StoreConfig(url=sys.argv[1], role="shard")
    uvloop.run(run_shard(ShardDaemonConfig(store=store, dispatch=loopback)))
