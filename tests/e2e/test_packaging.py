"""The package builds from its sources, and what is built works without the repository."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

USE = """
import sys, wheelsched
assert wheelsched.__file__.startswith(sys.argv[1]), wheelsched.__file__
from wheelsched import KeyedWheel, ObjectWheel, UUIDWheel, Wheel
wheel = Wheel()
wheel.add(5, 7)
assert wheel.advance(1 << 20) == [7]
import asyncio
from wheelsched.aio import AsyncWheel
async def use():
    async with AsyncWheel() as wheel:
        done = asyncio.Event()
        wheel.call_later(0, done.set)
        await asyncio.wait_for(done.wait(), 60)
asyncio.run(use())
from wheelsched.core.schedule import parse
assert parse("@daily", now_us=0).kind == "cron"
"""


def run(*command: str, cwd: Path) -> None:
    subprocess.run([sys.executable, "-P", *command], check=True, cwd=cwd, timeout=600)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel that is built from it and from nothing else, as `pip` does it."""
    target = tmp_path_factory.mktemp("dist")
    run("-m", "build", "--no-isolation", "--outdir", str(target), cwd=ROOT)
    return target


def install_wheel(packages: Path, target: Path) -> None:
    (package,) = packages.glob("*.whl")
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target"]
    run(*install, str(target), str(package), cwd=target)


def test_a_wheel_installs_and_works(packages: Path, tmp_path: Path) -> None:
    install_wheel(packages, tmp_path)
    use = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{USE}"
    run("-c", use, str(tmp_path), cwd=tmp_path)


def test_a_wheel_carries_its_types(packages: Path, tmp_path: Path) -> None:
    install_wheel(packages, tmp_path)
    assert (tmp_path / "wheelsched" / "py.typed").exists()
    assert (tmp_path / "wheelsched" / "_wheel.pyi").exists()
