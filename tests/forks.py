"""The command line as processes that are forked when all of it is loaded.

Each has its own memory, environment and ends as any process has. What none of them shows is that a
command loads what it needs: for that start one with `tests.stack.run`.
"""

import os
import sys
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from wheelsched.cli import main
from wheelsched.cli.app import COMMANDS

ENDS = ("stdin", "stdout", "stderr")  # by their descriptors

_context = get_context("forkserver")
_context.set_forkserver_preload(
    [f"wheelsched.cli.{place.partition(':')[0]}" for place in COMMANDS.values()]
)


class Done(NamedTuple):
    """How a command ended."""

    code: int | None
    stdout: str
    stderr: str


def run_forked(
    arguments: tuple[str, ...], stdin: str, environment: dict[str, str], timeout_s: float
) -> Done:
    """Runs a command to its end. One that does not end in time is killed, and has no code."""
    with TemporaryDirectory() as name:
        files = [Path(name) / end for end in ENDS]
        for file, text in zip(files, (stdin, "", ""), strict=True):
            file.write_text(text)
        task = (files, arguments, environment)
        process = _context.Process(target=_become, args=task, daemon=True)
        process.start()
        try:
            process.join(timeout_s)
            code = process.exitcode
        finally:
            process.kill()
            process.join()
            process.close()
        return Done(code, files[1].read_text(), files[2].read_text())


def _become(files: list[Path], arguments: tuple[str, ...], environment: dict[str, str]) -> None:
    """Does in a fork what `python -m wheelsched` does."""
    for descriptor, file in enumerate(files):
        opened = os.open(file, os.O_RDWR)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin = os.fdopen(0, closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["wheelsched", *arguments]
    main()
