"""The options of a scheduler.

Invariant: a config that was built is valid; nothing is opened to find that out.
"""

import re
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypedDict
from uuid import UUID

from msgspec import Struct

from wheelsched.config import DispatchConfig, LinkConfig, ShardConfig, WorkerConfig
from wheelsched.errors import InvalidSchedulerOption, quoted
from wheelsched.values.duration import SECOND
from wheelsched.worker.deduplication import Deduplication

Undeclared: TypeAlias = Literal["report", "pause", "delete"]

LOOPBACK: Final = "127.0.0.1:0"
MAX_RELEASE: Final = 10**15

_APPLICATION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}")


class Options(TypedDict, total=False):
    """What an application may choose; see `SchedulerConfig`."""

    application: str
    concurrency: int
    link: str
    link_address: str | None
    migrate: bool
    undeclared: Undeclared
    release: int
    tenant_id: UUID | None
    deduplicate: Deduplication | None
    worker: WorkerConfig
    shard: ShardConfig
    dispatch: DispatchConfig
    start_timeout_s: float
    stop_timeout_s: float


class SchedulerConfig(Struct, frozen=True, kw_only=True):
    """The configuration of a scheduler.

    All instances of one service have the same `application`; it is the first part of the names of
    its jobs and queues. At most `concurrency` handlers run at once; with 0 the process only
    schedules. `link` is where other instances connect to this one. Instances on other hosts need
    an address that they can reach; `link_address` is that address, if it is not the one in `link`.
    `migrate` applies pending migrations at the start. `undeclared` says what happens to jobs that
    were declared in code and are not any more. An instance with a lower `release` leaves the
    declared jobs of a higher one alone. `deduplicate` stores which runs are done, by default in
    memory.
    """

    url: str | None = None  # without one, an embedded Postgres in `home`
    home: Path | None = None
    application: str = "app"
    concurrency: int = 100
    link: str = LOOPBACK
    link_address: str | None = None
    migrate: bool = False
    undeclared: Undeclared = "report"
    release: int = 0
    tenant_id: UUID | None = None  # None: the tenant of local programs
    deduplicate: Deduplication | None = None
    worker: WorkerConfig = WorkerConfig()
    shard: ShardConfig = ShardConfig(drain_us=10 * SECOND)
    dispatch: DispatchConfig = DispatchConfig()
    start_timeout_s: float = 60.0
    stop_timeout_s: float = 10.0  # for the handlers; then they are cancelled

    def __post_init__(self) -> None:
        if not _APPLICATION.fullmatch(self.application):
            raise InvalidSchedulerOption(
                f"invalid application {quoted(self.application)}; expected 1 to 50 letters, digits "
                "and '.', '_', '-', of which the first is a letter or a digit"
            )
        if self.concurrency < 0:
            raise InvalidSchedulerOption(f"concurrency must be at least 0, not {self.concurrency}")
        if not 0 <= self.release <= MAX_RELEASE:
            raise InvalidSchedulerOption(f"release must be from 0 to 10^15, not {self.release}")
        if self.undeclared not in ("report", "pause", "delete"):
            raise InvalidSchedulerOption(
                f"invalid undeclared {quoted(self.undeclared)}; expected report, pause or delete"
            )
        _ = self.link_config  # raises if it is invalid

    @property
    def link_config(self) -> LinkConfig:
        """The listener for the links of other instances."""
        host, port = _read_address(self.link, "link")
        if self.link_address is not None:
            _read_address(self.link_address, "link_address")
        config = LinkConfig(host=host, port=port, address=self.link_address)
        if not config.is_reachable:
            raise InvalidSchedulerOption(
                f"no instance can connect to {host}; add link_address, or name one address in link"
            )
        return config


def _read_address(text: str, option: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (host and port.isdecimal() and int(port) <= 65_535):
        raise InvalidSchedulerOption(
            f"invalid {option} {quoted(text)}; expected HOST:PORT, e.g. 10.0.0.5:7420"
        )
    return host.strip("[]"), int(port)
