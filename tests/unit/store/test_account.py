import os
import pwd
from pathlib import Path

import pytest

from wheelsched.errors import EmbeddedServerFailure
from wheelsched.store.account import data_home, server_account
from wheelsched.store.cluster import LONGEST_SOCKET_NAME, LONGEST_SOCKET_PATH, runtime_directory


def test_root_keeps_its_data_where_another_account_can_reach_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert data_home() == Path("/var/lib/wheelsched")


def test_others_keep_it_in_their_data_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    assert data_home() == Path("/somewhere/wheelsched")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/user")
    assert data_home() == Path("/home/user/.local/share/wheelsched")


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
        runtime.rmdir()
