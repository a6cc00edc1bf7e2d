"""`python -m wheelsched.daemon`: runs one shard or one API, as assigned by the parent process."""

import sys
from functools import partial
from uuid import UUID

from wheelsched.daemon.api import ApiDaemonConfig, run_api
from wheelsched.daemon.bootstrap import run_role
from wheelsched.daemon.child_channel import Failed, Joining, Ready, read_assignment, send
from wheelsched.daemon.shard import ShardDaemonConfig, run_shard
from wheelsched.errors import WheelschedError, first_of
from wheelsched.logs import write_logs


def main() -> int:
    """Runs the assigned role and returns the exit code."""
    assignment = read_assignment()
    write_logs(assignment.log_level)

    def report_ready(address: str) -> None:
        send(Ready(address))

    def report_joining(shard_id: UUID) -> None:
        send(Joining(shard_id))

    match assignment.role:
        case ShardDaemonConfig() as config:
            role = partial(run_shard, config, report_ready, report_joining)
        case ApiDaemonConfig() as config:
            role = partial(run_api, config, report_ready)
    try:
        run_role(role())
    except (WheelschedError, ExceptionGroup) as error:
        first = first_of(error)
        if first is None:
            raise
        send(Failed(type(first).__name__, str(first)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
