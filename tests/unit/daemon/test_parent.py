"""The parent of a single shard."""

import subprocess
import sys

UNDER_PARENT = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
from wheelsched.daemon.parent import fork_under_parent
fork_under_parent()
os._exit(7)
"""


def test_a_parent_that_was_started_with_its_childrens_deaths_ignored_sees_them() -> None:
    """Whoever starts a program may have set that; the kernel then tells nobody of a death."""
    ended = subprocess.run([sys.executable, "-c", UNDER_PARENT], timeout=30, check=False)
    assert ended.returncode == 7
