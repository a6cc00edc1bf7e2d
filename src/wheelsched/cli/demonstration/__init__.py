"""What `demo` and `bench` do: a stack of its own, a worker, many jobs, and a look at what arrived.

`scenario` says what happens, `performance` makes it happen, `worker` is the process at the other
end, `evidence` is what was seen, `report` what it means.
"""
