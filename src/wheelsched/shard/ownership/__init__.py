"""The lease of a shard, the partitions it owns, and the takeover of dead shards."""
