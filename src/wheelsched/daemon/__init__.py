"""The composition root: the only package that chooses adapters.

`shard` and `api` are the two production roles, `processes` supervises several of them, and `up`
runs everything on an embedded Postgres. `database` has the operations that the command line runs
directly on a database.
"""

from wheelsched.extras import require

require("server")
