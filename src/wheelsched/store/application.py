"""Schedules and cancels jobs in a transaction of the application.

Invariant: a job exists if and only if the transaction commits. The connection is the application's:
nothing about it is changed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from wheelsched.errors import (
    InvalidSchedulerOption,
    JobNameTaken,
    QuotaExceeded,
    RightMissing,
)
from wheelsched.store.connections.connection import Connection
from wheelsched.store.connections.queries import load_queries

QUERIES = load_queries("application.sql")


async def schedule(connection: Connection, document: dict[str, Any], if_exists: str) -> UUID:
    """Schedules a job when the transaction commits, and returns its id."""
    _check(connection)
    fields = dict(document)
    name, when, payload = (fields.pop(each) for each in ("name", "schedule", "payload"))
    timezone = fields.pop("timezone", "UTC")
    text = when if isinstance(when, str) else msgspec.json.encode(when).decode()
    options = msgspec.json.encode(fields).decode()
    with _translated():
        job_id = await connection.fetchval(
            QUERIES["schedule"], name, text, bytes(payload).decode(), timezone, options, if_exists
        )
    return UUID(job_id)


async def cancel(connection: Connection, name: str) -> bool:
    """Deletes a job when the transaction commits; returns whether that is in time."""
    _check(connection)
    with _translated():
        return bool(await connection.fetchval(QUERIES["cancel"], name))


def _check(connection: object) -> None:
    """Refuses what has no transaction: a pool would use a connection of its own, and commit."""
    if isinstance(connection, asyncpg.Pool) or not hasattr(connection, "fetchval"):
        raise InvalidSchedulerOption(
            f"expected a connection of asyncpg, not {type(connection).__name__}"
        )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except asyncpg.UniqueViolationError as error:
        raise JobNameTaken(_message(error)) from error
    except asyncpg.InvalidParameterValueError as error:
        raise InvalidSchedulerOption(_message(error)) from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise RightMissing(_message(error)) from error
    except asyncpg.ConfigurationLimitExceededError as error:
        raise QuotaExceeded(_message(error)) from error


def _message(error: asyncpg.PostgresError) -> str:
    return f"{error}" if error.hint is None else f"{error}; {error.hint}"
