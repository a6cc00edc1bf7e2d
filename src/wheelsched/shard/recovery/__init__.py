"""Recovers the unfinished runs of dead shards and silent workers.

`shard/ownership/takeover.py` takes over a dead shard; what happens to its runs is decided here.
"""
