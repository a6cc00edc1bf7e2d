"""The shard daemon: acquire, load, arm, fire, settle and sweep. `pipeline` reads first."""
