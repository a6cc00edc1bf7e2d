import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from wheelsched.embedded.account import data_home, make_throwaway_home, server_account
from wheelsched.embedded.cluster import (
    HOME_LINK,
    LONGEST_SOCKET_NAME,
    LONGEST_SOCKET_PATH,
    runtime_directory,
)
from wheelsched.errors import EmbeddedServerFailure


@pytest.fixture
def open_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def closed_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp())
    yield directory
    shutil.rmtree(directory)


def test_root_keeps_its_data_where_another_account_can_reach_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert data_home(server_account("nobody")) == Path("/var/lib/wheelsched")


def test_root_keeps_its_data_in_the_home_of_the_account_where_the_system_s_is_closed(
    monkeypatch: pytest.MonkeyPatch, open_directory: Path, closed_directory: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    account = server_account("nobody")
    entry = pwd.struct_passwd(("nobody", "", account.uid, account.gid, "", str(open_directory), ""))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    monkeypatch.setattr("wheelsched.embedded.account.SYSTEM_DATA", closed_directory)
    assert data_home(account) == open_directory / "wheelsched"
    (closed_directory / "wheelsched").mkdir()  # what was there before is not left behind
    assert data_home(account) == closed_directory / "wheelsched"


def test_a_throwaway_home_is_where_the_account_can_reach_it(
    monkeypatch: pytest.MonkeyPatch, open_directory: Path, closed_directory: Path
) -> None:
    account = server_account("nobody")
    below = closed_directory / "below"
    below.mkdir(mode=0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(below))
    monkeypatch.setattr("wheelsched.embedded.account.SYSTEM_TEMPORARY", (open_directory,))
    made = make_throwaway_home(replace(account, uid=65534, gid=65534), "home-")
    assert made.parent == open_directory
    assert made.stat().st_mode & 0o777 == 0o711
    assert closed_directory.stat().st_mode & 0o777 == 0o700
    assert not list(below.iterdir())


def test_others_keep_it_in_their_data_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    account = server_account(None)
    assert data_home(account) == Path("/somewhere/wheelsched")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/user")
    assert data_home(account) == Path("/home/user/.local/share/wheelsched")


def test_a_plain_account_runs_the_server_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    account = server_account("postgres")
    assert not account.drops
    assert account.credentials() == {}


def test_root_drops_to_an_account_that_is_not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    account = server_account("nobody")
    assert account.drops
    assert account.credentials()["user"] == pwd.getpwnam("nobody").pw_uid
    with pytest.raises(EmbeddedServerFailure, match="no-such-account"):
        server_account("no-such-account")
    with pytest.raises(EmbeddedServerFailure, match="root"):
        server_account("root")


@pytest.mark.parametrize("length", [1, 60, 76, 77, 78, 120, 900])
def test_sockets_never_have_a_path_that_is_too_long(length: int) -> None:
    home = Path("/") / ("x" * length)
    runtime = runtime_directory(home)
    assert len(os.fsencode(runtime / LONGEST_SOCKET_NAME)) <= LONGEST_SOCKET_PATH
    assert runtime_directory(home) == runtime
    if runtime != home:
        assert (runtime / HOME_LINK).readlink() == home
        shutil.rmtree(runtime)
