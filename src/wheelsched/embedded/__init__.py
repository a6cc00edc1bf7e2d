"""Runs a Postgres from a package, for machines without one. Start with `postgres`."""
