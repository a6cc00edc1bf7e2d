"""`python -m wheelsched.daemon`: one shard or one API, as the process at the other end says."""

import sys
from functools import partial

from wheelsched.daemon.api import ApiDaemonConfig, run_api
from wheelsched.daemon.line import Failed, Ready, read_assignment, send
from wheelsched.daemon.opening import run_role
from wheelsched.daemon.shard import ShardDaemonConfig, run_shard
from wheelsched.errors import WheelschedError, first_of
from wheelsched.logs import write_logs


def main() -> int:
    """Does what it is told, and gives the exit code."""
    assignment = read_assignment()
    write_logs(assignment.log_level)

    def tell(address: str) -> None:
        send(Ready(address))

    match assignment.role:
        case ShardDaemonConfig() as config:
            role = partial(run_shard, config, tell)
        case ApiDaemonConfig() as config:
            role = partial(run_api, config, tell)
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
