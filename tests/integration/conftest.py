"""Homes of embedded servers, and programs that hold them.

Homes lie where the server's account can reach them: pytest's own directories are closed to
other accounts when the tests run as root.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.postgres import reachable_directory

from wheelsched.config import EmbeddedConfig
from wheelsched.embedded.postgres import EmbeddedPostgres

HOLDER = Path(__file__).with_name("embedded_holder.py")

Hold = Callable[[Path], subprocess.Popen[str]]


@pytest.fixture
def empty_home() -> Iterator[Path]:
    directory = reachable_directory()
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def initialised_home() -> Iterator[Path]:
    directory = reachable_directory()
    with EmbeddedPostgres.start(EmbeddedConfig(home=directory)):
        pass
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def home(empty_home: Path, initialised_home: Path) -> Path:
    """A home whose data is there already: a copy is quicker than an initdb."""
    for name in ("data", "password"):
        subprocess.run(["cp", "-a", initialised_home / name, empty_home], check=True)
    return empty_home


@pytest.fixture
def hold() -> Iterator[Hold]:
    """Starts programs that hold a server, each in a process group of its own."""
    holders = []

    def start(home: Path) -> subprocess.Popen[str]:
        command = [sys.executable, str(HOLDER), str(home)]
        holder = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        holders.append(holder)
        return holder

    yield start
    for holder in holders:
        holder.kill()
        holder.communicate()
