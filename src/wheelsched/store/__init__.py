"""The store on Postgres: the only package that knows SQL.

Invariant: every write of a shard is fenced by its lease row and can be replayed.
"""

from wheelsched.extras import require

require("server")
