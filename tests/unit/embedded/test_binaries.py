from pathlib import Path

import pytest

from wheelsched.embedded import binaries
from wheelsched.embedded.binaries import find_binaries
from wheelsched.errors import PostgresNotFound


def install(directory: Path, version: str) -> Path:
    directory.mkdir(parents=True)
    for program in binaries.PROGRAMS:
        (directory / program).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        (directory / program).chmod(0o755)
    return directory


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system where only what the test installs is found."""
    monkeypatch.delenv("WHEELSCHED_PG_BIN", raising=False)
    monkeypatch.setattr(binaries, "PACKAGES", ())
    monkeypatch.setattr(binaries, "SYSTEM_DIRECTORIES", (f"{tmp_path}/*/bin",))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return tmp_path


def test_the_newest_is_taken_for_new_data(system: Path) -> None:
    install(system / "16/bin", "16.4")
    newest = install(system / "18/bin", "18.1")
    assert find_binaries() == binaries.Binaries(newest, 18)


def test_existing_data_is_opened_by_the_version_that_wrote_it(system: Path) -> None:
    older = install(system / "16/bin", "16.4")
    install(system / "18/bin", "18.1")
    assert find_binaries(written_by=16).directory == older


def test_the_operators_choice_comes_first(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(system / "18/bin", "18.1")
    chosen = install(system / "elsewhere", "17beta1")
    monkeypatch.setenv("WHEELSCHED_PG_BIN", str(chosen))
    assert find_binaries() == binaries.Binaries(chosen, 17)


def test_a_version_too_old_is_refused_and_named(system: Path) -> None:
    install(system / "13/bin", "13.9")
    with pytest.raises(PostgresNotFound, match="found: 13 in"):
        find_binaries()


def test_data_of_a_missing_version_is_refused(system: Path) -> None:
    install(system / "18/bin", "18.1")
    with pytest.raises(PostgresNotFound, match="Postgres 17, which wrote the data"):
        find_binaries(written_by=17)


def test_a_program_that_does_not_run_is_passed_over(system: Path) -> None:
    broken = install(system / "18/bin", "18.1")
    (broken / "postgres").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(PostgresNotFound, match="found: none"):
        find_binaries()
