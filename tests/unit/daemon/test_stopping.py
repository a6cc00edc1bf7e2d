"""Signals that stop a process, counted by who sent them; and a parent that forwards them."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from uuid import uuid4

import pytest
from tests.waiting import WAIT_LIMIT_S

from wheelsched.daemon.parent import STOP_FROM_PARENT, ShardRecord, needs_parent

STOPPABLE = """
import asyncio, os, sys
from wheelsched.daemon.bootstrap import run_role, stop_on_signals

async def main():
    stopping = asyncio.Event()
    stop_on_signals(stopping)
    for number in map(int, sys.argv[1:]):
        os.kill(os.getpid(), number)
        await asyncio.sleep(0.05)
    assert stopping.is_set()

run_role(main())
"""

EXITING = """
import asyncio, os, signal
from functools import partial
from wheelsched.daemon.bootstrap import run_role, stop_on_signals
from wheelsched.daemon.parent import STOP_FROM_PARENT

forward = partial(os.kill, os.getpid(), STOP_FROM_PARENT)

class Last:
    def __del__(self, forward=forward):
        forward()  # after the interpreter has removed all handlers

async def main():
    stopping = asyncio.Event()
    stop_on_signals(stopping)
    os.kill(os.getpid(), signal.SIGTERM)
    await stopping.wait()

run_role(main())
forward()
last = Last()
"""


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ([signal.SIGTERM], 0),
        ([signal.SIGTERM, STOP_FROM_PARENT], 0),
        ([STOP_FROM_PARENT, signal.SIGINT], 0),
        ([signal.SIGTERM, signal.SIGINT], 128 + signal.SIGINT),
        ([STOP_FROM_PARENT, signal.SIGTERM, STOP_FROM_PARENT], 128 + STOP_FROM_PARENT),
    ],
)
def test_a_second_signal_of_one_sender_ends_the_process(
    sent: Sequence[signal.Signals], code: int
) -> None:
    command = [sys.executable, "-c", STOPPABLE, *(str(int(number)) for number in sent)]
    done = subprocess.run(
        command, check=False, timeout=WAIT_LIMIT_S, env=os.environ, stderr=subprocess.PIPE
    )
    assert done.returncode == code, done.stderr


def test_a_signal_that_is_forwarded_to_an_exiting_process_changes_nothing() -> None:
    """A service manager has told it to stop, and its parent was slow to forward the same."""
    command = [sys.executable, "-c", EXITING]
    done = subprocess.run(command, check=False, timeout=WAIT_LIMIT_S, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr


WAITING = "import signal; signal.sigwait([signal.SIGUSR1]); raise SystemExit(138)"
PARENT = """
import os, signal, sys
from wheelsched.daemon.parent import STOP_FROM_PARENT, WATCHED, wait_for

sent, *command = sys.argv[1:]
signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
orphan = os.posix_spawnp("true", ["true"], os.environ)
blocked = [STOP_FROM_PARENT] if "sigwait" in command[-1] else []  # until it waits for it
child = os.posix_spawnp(command[0], command, os.environ, setsigmask=blocked)
if int(sent):
    os.kill(os.getpid(), int(sent))
print(wait_for(child))
"""


@pytest.mark.parametrize(
    ("command", "sent", "code"),
    [
        (("sh", "-c", "exit 7"), 0, 7),
        (("sh", "-c", "kill -9 $$"), 0, -signal.SIGKILL),
        (("sleep", "600"), signal.SIGTERM, -signal.SIGTERM),
        (("sleep", "600"), signal.SIGINT, -signal.SIGINT),
        (("sleep", "600"), signal.SIGHUP, -signal.SIGHUP),
        ((sys.executable, "-c", WAITING), signal.SIGTERM, 128 + signal.SIGTERM),
    ],
)
def test_a_parent_ends_as_its_child(command: tuple[str, ...], sent: int, code: int) -> None:
    """In a process of its own, because a thread of ours could take its signals."""
    arguments = [sys.executable, "-c", PARENT, str(int(sent)), *command]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, check=True, timeout=WAIT_LIMIT_S)
    assert int(done.stdout) == code


def test_the_ids_of_a_killed_process_are_known() -> None:
    joined = ShardRecord()
    ids = [uuid4() for _ in range(ShardRecord.MOST_IDS + 3)]
    child = os.fork()
    if child == 0:
        for shard_id in ids:
            joined.add(shard_id)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert joined.shard_ids == set(ids[3:])


def test_nothing_is_certified_for_a_process_that_never_joined() -> None:
    assert ShardRecord().shard_ids == set()


def test_what_a_killed_process_described_is_known() -> None:
    record = ShardRecord()
    child = os.fork()
    if child == 0:
        record.describe(b"how to end its lease")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert record.document == b"how to end its lease"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("shard --database-url x", True),
        ("shard --processes 1", True),
        ("shard --processes=1", True),
        ("shard --processes 2", False),
        ("shard --processes=12", False),
        ("shard --no-parent", False),
        ("shard --help", False),
        ("shards", False),
        ("api", False),
        ("", False),
    ],
)
def test_only_a_single_shard_gets_a_parent(arguments: str, expected: bool) -> None:
    assert needs_parent(arguments.split()) is expected
