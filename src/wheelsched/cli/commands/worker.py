"""`worker`: runs a worker that pulls.

Invariant: on SIGTERM or SIGINT the worker takes no more runs, finishes those that it has begun and
gives back the others; a second signal ends the process at once.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Final

import typer

from wheelsched.cli.shared import TokenOption
from wheelsched.client.client import DEFAULT_URL
from wheelsched.daemon.bootstrap import run_role
from wheelsched.errors import WorkerNotFound, quoted
from wheelsched.worker import Worker

GC_THRESHOLDS: Final = (20_000, 50, 100)
EXAMPLE: Final = "expected MODULE:WORKER, e.g. app.jobs:worker"


def worker(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:WORKER", help="The Worker, e.g. app.jobs:worker.")
    ],
    queues: Annotated[list[str], typer.Option("--queue", help="A queue to pull from; repeatable.")],
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of runs at once.")
    ] = None,
    url: Annotated[
        str,
        typer.Option(
            envvar="WHEELSCHED_URL",
            help="URL of the API, or several separated by commas, for failover.",
        ),
    ] = DEFAULT_URL,
    token: TokenOption = None,
) -> None:
    """Pull runs from queues and call their handlers."""
    loaded = load_worker(target)
    # With the defaults of Python, half of a worker's time goes into looking for garbage.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    urls = [each.strip() for each in url.split(",") if each.strip()]
    run_role(_run(loaded, urls, token, queues, concurrency))


async def _run(
    loaded: Worker, urls: list[str], token: str | None, queues: list[str], concurrency: int | None
) -> None:
    running = asyncio.create_task(
        loaded.run(urls, token=token, queues=queues, concurrency=concurrency)
    )
    _stop_on_signals(loaded)
    await running


def _stop_on_signals(loaded: Worker) -> None:
    stopping: list[asyncio.Task[None]] = []

    def handle(number: int) -> None:
        if stopping:
            os._exit(128 + number)
        stopping.append(asyncio.create_task(loaded.stop()))

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, handle, number)


def load_worker(target: str) -> Worker:
    """The worker at `MODULE:WORKER`; modules of the current directory are found, too."""
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise WorkerNotFound(f"{quoted(target)} does not name a worker; {EXAMPLE}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: object = import_module(module_name)
    except ModuleNotFoundError as error:
        is_inside = error.name is not None and not module_name.startswith(error.name)
        if is_inside:  # the module exists, and imports one that does not
            raise
        raise WorkerNotFound(f"no module {quoted(module_name)}; {EXAMPLE}") from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Worker):
        raise WorkerNotFound(f"{quoted(name)} in {quoted(module_name)} is not a Worker; {EXAMPLE}")
    return found
