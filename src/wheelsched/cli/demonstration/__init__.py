"""The scenario behind `demo` and `bench`: a private stack, a worker, many jobs, and an evaluation.

`scenario` defines what happens, `runner` makes it happen, `worker` is the process that receives the
callbacks, `evidence` is what was observed, and `report` presents it.
"""
