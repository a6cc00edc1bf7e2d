"""Links: authenticated connections over which shards hand runs to other processes."""
