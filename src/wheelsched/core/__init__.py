"""The pure core: it takes integers and values, and returns decisions.

Invariant: nothing here does I/O, reads a clock, uses asyncio or has its own source of randomness.
The same arguments give the same decision in the shard, the API, the CLI and the simulation.
"""
