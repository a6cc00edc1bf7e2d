"""The package builds from its sources, and what is built works without the repository."""

import shutil
import subprocess
import sys
import tarfile
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.proof  # builds the packages

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
from wheelsched.schedule.parse import parse
assert parse("@daily", now_us=0).kind == "cron"
"""

# With nothing but what the plain package requires.
USE_PLAIN = """
import asyncio
from importlib import import_module
from wheelsched import Wheel, __version__
from wheelsched.client import Client, ClientConfig
from wheelsched.errors import ApiUnavailable, MissingExtra
from wheelsched.testing import VirtualClock
from wheelsched.worker import Worker

wheel = Wheel()
wheel.add(5, 7)
assert wheel.advance(1 << 20) == [7]

worker = Worker(secrets=["whsec_" + 8 * "MDEy"])

@worker.job("greet")
async def greet(payload: dict[str, str]) -> None:
    assert payload == {"name": "you"}

async def use():
    delivered = await worker.test_client().deliver("greet", {"name": "you"})
    assert delivered.outcome == "succeeded", delivered
    async with Client("http://127.0.0.1:1", config=ClientConfig(max_attempts=1)) as client:
        try:
            await client.list_shards()
        except ApiUnavailable:
            return
    raise AssertionError("somebody answered")

asyncio.run(use())

def said_of(part, name=None):
    try:
        getattr(import_module(part), name or "")
    except MissingExtra as error:
        return str(error)

parts = ("cli", "api", "shard", "store", "daemon", "scheduler", "schedule.cron.expression")
for part in parts:
    assert "pip install 'wheelsched[server]'" in said_of(f"wheelsched.{part}"), part
assert said_of("wheelsched.worker", "PostgresOnce").startswith("asyncpg is not installed")
assert said_of("wheelsched", "Scheduler").startswith("asyncpg is not installed")
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


def test_packages_carry_the_grpc_contract(packages: Path, tmp_path: Path) -> None:
    install_wheel(packages, tmp_path)
    (sdist,) = packages.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("dispatcher.proto", "dispatcher.binpb", "dispatcher_pb2.pyi"):
        source = Path("src/wheelsched/v1") / name
        installed = tmp_path / "wheelsched" / "v1" / name
        assert installed.read_bytes() == (ROOT / source).read_bytes()
        assert str(source) in packed


@pytest.fixture(scope="module")
def plain(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and what it requires without extras.

    What it requires is copied from the environment of the tests: this needs no package index.
    """
    environment = tmp_path_factory.mktemp("plain")
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    (package,) = packages.glob("*.whl")
    install = ("-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps")
    run(*install, "--no-index", str(package), cwd=environment)
    (site,) = environment.glob("lib/python*/site-packages")
    for required in required_by(distribution("wheelsched")):
        for file in required.files or ():
            if ".." not in file.parts:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), site / file)
    return python


def required_by(whole: Distribution) -> list[Distribution]:
    """What a distribution requires without extras, and what that requires."""
    found: dict[str, Distribution] = {}
    waiting = [whole]
    while waiting:
        for text in waiting.pop().requires or ():
            requirement = Requirement(text)
            is_asked_for = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            if is_asked_for and requirement.name not in found:
                found[requirement.name] = distribution(requirement.name)
                waiting.append(found[requirement.name])
    return list(found.values())


def test_without_extras_worker_client_and_wheel_work(plain: Path, tmp_path: Path) -> None:
    subprocess.run([plain, "-I", "-c", USE_PLAIN], check=True, cwd=tmp_path, timeout=600)


def test_without_extras_the_command_says_which_one_it_needs(plain: Path, tmp_path: Path) -> None:
    command = plain.with_name("wheelsched")
    said = subprocess.run(
        [command, "up"], cwd=tmp_path, timeout=600, capture_output=True, text=True, check=False
    )
    assert said.returncode == 1
    assert said.stderr.startswith("wheelsched: ")
    assert "pip install 'wheelsched[server]'" in said.stderr
    assert "Traceback" not in said.stderr
