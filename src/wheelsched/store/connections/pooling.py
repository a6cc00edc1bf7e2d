"""Finds out whether a pooler binds a connection to one server process.

Invariant: without a pooler there is no check, so there is no false alarm. In session mode a server
process belongs to one connection, whatever else the pooler does.
"""

import asyncio
from enum import Enum, auto
from typing import Final

import asyncpg

from wheelsched.store.connections.connection import RawConnection, row_count
from wheelsched.store.connections.queries import load_queries

QUERIES = load_queries("session.sql")

ROUNDS: Final = 4
CLOSED_WITHIN_S: Final = 0.5  # the server ends the idle process after 100 ms
CLOSED_AFTER_S: Final = 0.05  # the pooler had passed the answer on before the process ended


class Pooling(Enum):
    """What a pooler assigns to a server process: a connection, or one transaction."""

    SESSION = auto()
    TRANSACTION = auto()
    UNKNOWN = auto()


async def judge_pooling(connection: RawConnection, probe: RawConnection) -> Pooling:
    """Judges by two connections through the same pooler. The probe is used up.

    Neither depends on prepared statements, which poolers in transaction mode mix up.
    """
    try:
        pid = await probe.fetchval(QUERIES["read_pid"])
        for asked in (connection, probe, probe) * ROUNDS:
            if await _is_answered_by(asked, pid) is not (asked is probe):
                return Pooling.TRANSACTION
        return await _let_process_end(probe)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        return Pooling.UNKNOWN


async def _is_answered_by(connection: RawConnection, pid: int) -> bool:
    return row_count(await connection.execute(QUERIES["is_process"].format(pid=pid))) == 1


async def _let_process_end(probe: RawConnection) -> Pooling:
    """Judges by what becomes of a connection whose server process ends.

    The server ends a process whose session is idle. In session mode the pooler then ends the
    connection. In transaction mode the idle connection has no process, and its next statement runs
    on another one. So this tells them apart even if each of several poolers has one client.

    A pooler that reads the answer and the end of the process together ends the connection in both
    modes. Then the end comes with the answer, and says nothing.
    """
    loop = asyncio.get_running_loop()
    pid = await probe.fetchval(QUERIES["expire_when_idle"])
    for _ in range(ROUNDS):  # a busy server may be late to end the process
        answered_s = loop.time()
        if await _is_closed_soon(probe):
            is_later = loop.time() - answered_s >= CLOSED_AFTER_S
            return Pooling.SESSION if is_later else Pooling.UNKNOWN
        if not await _is_answered_by(probe, pid):
            return Pooling.TRANSACTION
    return Pooling.UNKNOWN


async def _is_closed_soon(probe: RawConnection) -> bool:
    closed = asyncio.Event()
    probe.add_termination_listener(lambda _: closed.set())
    try:
        async with asyncio.timeout(CLOSED_WITHIN_S):
            await closed.wait()
    except TimeoutError:
        return probe.is_closed()
    return True
