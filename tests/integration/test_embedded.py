"""The embedded Postgres, with real processes and real signals."""

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest
from tests.ports import reserved_port
from tests.waiting import until

from wheelsched.config import EmbeddedConfig
from wheelsched.embedded.account import server_account
from wheelsched.embedded.binaries import find_binaries
from wheelsched.embedded.postgres import EmbeddedPostgres
from wheelsched.errors import DataDirectoryBusy, DataDirectoryUnreachable, EmbeddedServerFailure

pytestmark = pytest.mark.proof  # each starts servers of its own

Hold = Callable[[Path], subprocess.Popen[str]]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to another account")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal is Linux's")


def start(home: Path, **options: object) -> EmbeddedPostgres:
    return EmbeddedPostgres.start(EmbeddedConfig(home=home, **options))  # type: ignore[arg-type]


def url_of(holder: subprocess.Popen[str]) -> str:
    assert holder.stdout
    return holder.stdout.readline().strip()


def server_pid(home: Path) -> int:
    return int((home / "data/postmaster.pid").read_text().splitlines()[0])


def supervisor_pid(home: Path) -> int:
    return int(Path(f"/proc/{server_pid(home)}/stat").read_text().rsplit(") ", 1)[1].split()[1])


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def eventually(condition: Callable[[], bool]) -> None:
    async def is_so() -> bool:
        return condition()

    await until(is_so)


async def query(url: str, sql: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(sql)
    finally:
        with contextlib.suppress(OSError, asyncpg.InterfaceError):
            await connection.close(timeout=10)


@pytest.mark.smoke
async def test_it_starts_answers_and_keeps_its_data(home: Path) -> None:
    with start(home) as server:
        await query(server.url, "create table kept as select 7 as value")
    with start(home) as server:
        assert await query(server.url, "select value from kept") == 7


async def test_stop_returns_after_the_server_has_ended(home: Path) -> None:
    server = start(home)
    pid = server_pid(home)
    server.stop()
    assert not is_alive(pid)
    assert not (home / "data/postmaster.pid").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
async def test_the_server_ends_with_its_holder(
    home: Path, hold: Hold, number: signal.Signals
) -> None:
    holder = hold(home)
    url_of(holder)
    pid = server_pid(home)
    os.killpg(holder.pid, number)
    await eventually(lambda: not is_alive(pid))


async def test_two_processes_share_it_and_the_last_one_ends_it(home: Path, hold: Hold) -> None:
    first, second = hold(home), hold(home)
    assert url_of(first) == (url := url_of(second))
    pid = server_pid(home)
    first.kill()
    first.wait()
    assert await query(url, "select 1") == 1
    assert server_pid(home) == pid
    second.kill()
    await eventually(lambda: not is_alive(pid))


async def test_many_processes_at_once_start_one_server(empty_home: Path, hold: Hold) -> None:
    holders = [hold(empty_home) for _ in range(6)]
    assert len({url_of(holder) for holder in holders}) == 1
    pid = server_pid(empty_home)
    for holder in holders:
        holder.kill()
    await eventually(lambda: not is_alive(pid))


async def test_a_program_that_comes_while_the_server_stops_gets_a_new_one(
    home: Path, hold: Hold
) -> None:
    holder = hold(home)
    url_of(holder)
    holder.kill()
    with start(home) as server:
        assert await query(server.url, "select 1") == 1


async def test_programs_that_come_and_go_at_the_same_moment_never_wait_for_each_other(
    home: Path,
) -> None:
    def come_and_go() -> None:
        for _ in range(5):
            with start(home):
                pass

    async with asyncio.timeout(120):
        await asyncio.gather(*(asyncio.to_thread(come_and_go) for _ in range(3)))
    assert not (home / "data/postmaster.pid").exists()


async def test_a_killed_server_comes_back_with_its_data(home: Path) -> None:
    with start(home) as server:
        await query(server.url, "create table kept as select 7 as value")
        killed = server_pid(home)
        os.kill(killed, signal.SIGKILL)

        async def is_back() -> bool:
            try:
                return await query(server.url, "select 1") == 1
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                return False

        await until(is_back)
        assert await query(server.url, "select value from kept") == 7
        assert server_pid(home) != killed


@on_linux
async def test_a_killed_supervisor_takes_the_server_with_it(home: Path) -> None:
    with start(home) as server:
        await query(server.url, "create table kept as select 7 as value")
        pid = server_pid(home)
        os.kill(supervisor_pid(home), signal.SIGKILL)
        await eventually(lambda: not is_alive(pid))
    with start(home) as server:
        assert await query(server.url, "select value from kept") == 7


@on_linux
async def test_a_process_that_outlives_its_killed_server_is_waited_for(home: Path) -> None:
    with start(home) as server:
        connection = await asyncpg.connect(server.url)
        await connection.execute("create table kept as select 7 as value")
        computing = connection.get_server_pid()
        os.kill(computing, signal.SIGSTOP)  # as one that computes, it does not notice
        os.kill(supervisor_pid(home), signal.SIGKILL)
        os.kill(server_pid(home), signal.SIGKILL)
        connection.terminate()
    log = home / "server.log"
    joining = asyncio.create_task(asyncio.to_thread(start, home))
    await eventually(lambda: "pre-existing shared memory block" in log.read_text())
    os.kill(computing, signal.SIGKILL)
    with await joining as server:
        assert await query(server.url, "select value from kept") == 7


async def test_what_the_server_says_is_for_its_owner(empty_home: Path) -> None:
    with start(empty_home):
        assert stat.S_IMODE((empty_home / "server.log").stat().st_mode) == 0o600


@on_linux
async def test_a_server_left_behind_by_a_killed_supervisor_is_ended_first(home: Path) -> None:
    with start(home) as server:
        connection = await asyncpg.connect(server.url)
        pid = server_pid(home)
        os.kill(pid, signal.SIGSTOP)
        os.kill(supervisor_pid(home), signal.SIGKILL)
        joining = asyncio.create_task(asyncio.to_thread(start, home))
        await asyncio.sleep(0)
        os.kill(pid, signal.SIGCONT)
        with await joining as successor:
            assert await query(successor.url, "select 1") == 1
            assert server_pid(home) != pid
        connection.terminate()


async def test_a_pid_file_of_another_program_harms_no_process(home: Path) -> None:
    with start(home):
        pass
    credentials = server_account(None).credentials()
    with subprocess.Popen(["sleep", "600"], **credentials) as bystander:
        (home / "data/postmaster.pid").write_text(f"{bystander.pid}\n{home / 'data'}\n1\n5432\n")
        with start(home) as server:
            assert await query(server.url, "select 1") == 1
        assert bystander.poll() is None
        bystander.kill()


async def test_an_initialisation_that_was_cut_short_is_done_again(empty_home: Path) -> None:
    (empty_home / "data.initialising").mkdir()
    (empty_home / "data.initialising/PG_VERSION").write_text("18\n")
    with start(empty_home) as server:
        assert await query(server.url, "select 1") == 1


async def test_a_path_too_long_for_a_socket_still_works(empty_home: Path, hold: Hold) -> None:
    deep = empty_home / ("directory-" * 6) / ("directory-" * 6)
    with start(deep) as server:
        holder = hold(deep)
        assert url_of(holder) == server.url
        assert await query(server.url, "select 1") == 1
        holder.kill()
        holder.wait()
        runtime = Path(parse_qs(urlsplit(server.url).query)["host"][0]).parent
        assert runtime.is_dir()
    assert not runtime.exists()
    with start(deep) as server:
        assert await query(server.url, "select 1") == 1


async def test_tcp_asks_for_the_password(home: Path) -> None:
    with reserved_port() as port, start(home, port=port) as server:
        assert await query(server.tcp_url, "select inet_server_port()") == port
        with pytest.raises(asyncpg.InvalidPasswordError):
            await query(f"postgresql://wheelsched:wrong@127.0.0.1:{port}/postgres", "select 1")


def test_other_settings_on_a_shared_home_are_refused(home: Path) -> None:
    with start(home), pytest.raises(DataDirectoryBusy, match="other settings"):
        start(home, settings={"max_connections": "7"})


def test_a_server_that_cannot_start_says_why(home: Path) -> None:
    with pytest.raises(EmbeddedServerFailure, match="no_such_setting"):
        start(home, settings={"no_such_setting": "1"})


def test_a_postgres_data_directory_is_not_taken_for_a_home(empty_home: Path) -> None:
    (empty_home / "PG_VERSION").write_text("18\n")
    with pytest.raises(DataDirectoryBusy, match="itself a Postgres data directory"):
        start(empty_home)


@pytest.mark.parametrize("name", ["file", "file/below", "x" * 300, "/proc/wheelsched"])
def test_a_home_that_cannot_be_is_named(empty_home: Path, name: str) -> None:
    (empty_home / "file").write_text("")
    with pytest.raises(DataDirectoryUnreachable, match=f"{name} cannot be written"):
        start(empty_home / name)


@as_root
def test_a_directory_closed_to_the_account_is_named_and_left_as_it_is(empty_home: Path) -> None:
    closed = empty_home / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(DataDirectoryUnreachable, match=str(closed)):
        start(closed / "data-home")
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert closed.stat().st_uid == 0


@as_root
async def test_programs_closed_to_the_account_are_copied(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = empty_home / "closed"
    closed.mkdir(mode=0o700)
    installation = find_binaries().directory.parent
    package = installation.parent
    shutil.copytree(installation, closed / package.name / installation.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, closed / libraries.name)
    monkeypatch.setenv("WHEELSCHED_PG_BIN", str(closed / package.name / installation.name / "bin"))
    with start(empty_home / "data-home") as server:
        assert await query(server.url, "select 1") == 1
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
