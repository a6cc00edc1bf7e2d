"""The runs that a shard holds, from their claim to their outcome."""
