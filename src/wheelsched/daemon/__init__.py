"""The composition root: the only package that names adapters.

`shard` and `api` are the two production roles, `processes` keeps several of them alive, and `up`
puts all of it on an embedded Postgres. What the command line asks of a database is in `database`.
"""
