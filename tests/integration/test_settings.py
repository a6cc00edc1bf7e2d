"""The settings of an installation: read, changed while it runs, and refused out of bounds."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
from tests.postgres import TIMEOUTS, Connect

from wheelsched.config import StoreConfig
from wheelsched.daemon.database import (
    change_database_settings,
    read_database_settings,
    read_schema,
)
from wheelsched.errors import InvalidSetting
from wheelsched.store.connections.database import Database
from wheelsched.store.schema.migrate import known_migrations, migrate
from wheelsched.store.schema.settings import Settings, change_settings, read_settings


@pytest.fixture
async def owner(database: str) -> AsyncIterator[Database]:
    async with await Database.open(StoreConfig(url=database, role="owner", **TIMEOUTS)) as opened:
        yield opened


async def test_a_new_installation_has_the_defaults(database: str, owner: Database) -> None:
    assert await read_settings(owner) == Settings(history_days=30, dead_days=90, finished_days=7)
    assert (await read_schema(database)).settings == Settings()


async def test_what_is_given_is_changed_and_the_rest_stays(database: str, owner: Database) -> None:
    changed = await change_database_settings(database, {"history_days": 7})
    assert changed == Settings(history_days=7)
    await change_settings(owner, "somebody", {"dead_days": 10, "finished_days": 1})
    expected = Settings(history_days=7, dead_days=10, finished_days=1)
    assert await read_database_settings(database) == expected
    actors = await owner.fetch("SELECT actor FROM audit WHERE verb = 'settings.change'")
    assert [row["actor"] for row in actors] == ["command line", "somebody"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"history_days": 0}, "history_days is 0; expected 1 to 3,650 days"),
        ({"dead_days": 3651}, "dead_days is 3651; expected 1 to 3,650 days"),
        ({"finished_days": -1}, "finished_days is -1; expected 1 to 3,650 days"),
        ({"history_days": 91}, r"dead_days \(90\) is less than history_days \(91\)"),
        ({"dead_days": 29}, r"dead_days \(29\) is less than history_days \(30\)"),
        ({"history_days": 0, "finished_days": 0}, "history_days is 0.*finished_days is 0"),
    ],
)
async def test_what_is_out_of_bounds_is_refused_with_all_its_problems(
    owner: Database, changes: dict[str, int], problem: str
) -> None:
    with pytest.raises(InvalidSetting, match=problem):
        await change_settings(owner, "somebody", changes)
    assert await read_settings(owner) == Settings()


async def test_both_bounds_can_move_past_each_other_at_once(owner: Database) -> None:
    changes = {"history_days": 365, "dead_days": 365}
    assert await change_settings(owner, "somebody", changes) == Settings(**changes)


async def test_the_database_itself_refuses_a_second_row_and_wrong_values(owner: Database) -> None:
    for statement in (
        "INSERT INTO settings DEFAULT VALUES",
        "INSERT INTO settings (is_only) VALUES (false)",
        "UPDATE settings SET history_days = 0",
        "UPDATE settings SET dead_days = 29",
    ):
        async with owner.connection() as connection:
            with pytest.raises(asyncpg.IntegrityConstraintViolationError):
                await connection.execute(statement)


@pytest.mark.parametrize(("age", "history_days"), [(30, 30), (31, 90)])
async def test_an_upgrade_keeps_the_history_that_is_there(
    empty_database: str,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    age: int,
    history_days: int,
) -> None:
    connection = await connect(empty_database)
    known = known_migrations()
    names = [each.name for each in known]
    before = known[: names.index("retention")]
    monkeypatch.setattr("wheelsched.store.schema.migrate.known_migrations", lambda: before)
    await migrate(connection)
    await connection.execute(
        "SELECT make_days(ARRAY[(now() AT TIME ZONE 'UTC')::date - $1::integer])", age
    )
    monkeypatch.undo()
    await migrate(connection)
    assert (await read_settings(connection)).history_days == history_days
