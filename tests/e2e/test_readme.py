"""The README as a new user follows it: a stack, the worker, and every command in its order."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from tests.ports import reserved_port
from tests.stack import GENEROUS_S, RunningStack, clean_environment

ROOT = Path(__file__).parents[2]


def blocks(document: str, language: str) -> list[str]:
    fenced = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return fenced.findall((ROOT / document).read_text())


class Reader:
    """Runs blocks as they are written, but for the ports, which others may have taken."""

    def __init__(self, stack: RunningStack, worker_port: int) -> None:
        self._stack = stack
        self._worker_port = worker_port

    def here(self, text: str) -> str:
        return text.replace("http://127.0.0.1:8420", self._stack.url).replace(
            "9000", str(self._worker_port)
        )

    @property
    def environment(self) -> dict[str, str]:
        programs = Path(sys.executable).parent
        return clean_environment() | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "WHEELSCHED_URL": self._stack.url,
            "WHEELSCHED_DATABASE_URL": self._stack.database_url,
            "WHEELSCHED_SECRET": self._stack.secret,
        }

    def start(self, program: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", self.here(program)],
            stdout=subprocess.PIPE,
            text=True,
            env=self.environment,
        )

    def run(self, *command: str) -> None:
        subprocess.run(
            [self.here(each) for each in command],
            check=True,
            cwd=ROOT,
            env=self.environment,
            timeout=GENEROUS_S,
        )


@pytest.fixture(scope="module")
def reader(stack: RunningStack) -> Iterator[Reader]:
    with reserved_port() as worker_port:
        yield Reader(stack, worker_port)


@pytest.fixture(scope="module")
def worker(reader: Reader) -> Iterator[subprocess.Popen[str]]:
    (program,) = [block for block in blocks("README.md", "python") if "run_app" in block]
    process = reader.start(program)
    yield process
    process.terminate()
    process.communicate(timeout=GENEROUS_S)


def test_the_readme_works_in_its_order(reader: Reader, worker: subprocess.Popen[str]) -> None:
    first, *others = blocks("README.md", "bash")
    reader.run("bash", "-euo", "pipefail", "-c", first)
    assert worker.stdout is not None
    assert any(line.startswith("hello you, attempt") for line in worker.stdout)
    for block in blocks("README.md", "python"):
        if "from_environment" in block:
            reader.run(sys.executable, "-c", block)
    for block in others:
        reader.run("bash", "-euo", "pipefail", "-c", block)


def test_the_sql_of_the_readme_works(reader: Reader) -> None:
    async def type_it(block: str) -> None:
        url = reader.environment["WHEELSCHED_DATABASE_URL"]
        connection = await asyncpg.connect(url, server_settings={"search_path": "public"})
        await connection.execute("CREATE TABLE orders (number integer)")
        await connection.execute("CREATE ROLE shop; GRANT ALL ON orders TO shop")
        reader.run("wheelsched", "tenant", "grant", "local", "--database-role", "shop")
        await connection.execute("SET ROLE shop")
        *statements, cancel = [each for each in block.split(";\n") if each.strip()]
        for statement in statements:
            await connection.execute(statement)
        assert await connection.fetchval(cancel.partition(";")[0]) is True
        await connection.close()

    (block,) = blocks("README.md", "sql")
    asyncio.run(type_it(block))


@pytest.mark.proof
@pytest.mark.parametrize("block", blocks("docs/OPERATIONS.md", "bash"))
def test_commands_in_advice_for_operators_work(reader: Reader, block: str) -> None:
    reader.run("bash", "-euo", "pipefail", "-c", block)
