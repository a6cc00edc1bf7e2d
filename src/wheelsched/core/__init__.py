"""The pure core: integers and values in, decisions out.

Invariant: nothing here does I/O, reads a clock, knows asyncio or draws its own randomness.
The same arguments give the same decision in the shard, the API, the CLI and the simulation.
"""
