"""What a shard asks of the store: leases, timers, claims, outcomes, hints."""
