"""A program that holds an embedded Postgres: prints its address, then waits to be ended."""

import signal
import sys
from pathlib import Path

from wheelsched.config import EmbeddedConfig
from wheelsched.store.embedded import EmbeddedPostgres

if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with EmbeddedPostgres.start(EmbeddedConfig(home=Path(sys.argv[1]))) as server:
        print(server.url, flush=True)
        signal.pause()
