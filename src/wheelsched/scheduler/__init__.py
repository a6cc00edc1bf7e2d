"""The scheduler inside an application: a shard, its links and a worker in one asyncio process.

`scheduler` is what applications use. `tasks` holds their handlers, `documents` and `job_book` write
jobs, `declared_jobs` keeps those that are declared in code. `instance` joins the parts on Postgres,
`testing` on a store in memory, and `local_worker` calls the handlers.
"""

from wheelsched.extras import require

require("server")

from wheelsched.scheduler.config import SchedulerConfig  # noqa: E402
from wheelsched.scheduler.scheduler import Scheduler  # noqa: E402
from wheelsched.scheduler.testing import TestingScheduler  # noqa: E402

__all__ = ["Scheduler", "SchedulerConfig", "TestingScheduler"]
