"""A program that holds an embedded Postgres: prints its address, then waits to be ended.

SIGUSR1 ends it in good order, SIGINT by an exception, SIGTERM and SIGKILL at once.
"""

import signal
import sys
from pathlib import Path

from wheelsched.config import EmbeddedConfig
from wheelsched.embedded.postgres import EmbeddedPostgres

if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGINT})
    with EmbeddedPostgres.start(EmbeddedConfig(home=Path(sys.argv[1]))) as server:
        print(server.url, flush=True)
        if signal.sigwait({signal.SIGUSR1, signal.SIGINT}) == signal.SIGINT:
            raise KeyboardInterrupt
