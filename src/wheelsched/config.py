"""Settings: one struct per component, validated when it is built."""

from pathlib import Path
from typing import Literal

from msgspec import Struct, field


class EmbeddedConfig(Struct, frozen=True, kw_only=True):
    """Where the embedded Postgres lives, and how it is reached.

    `home` is the directory that holds its data; by default one in the user's data home.
    `port` opens TCP on the loopback beside the unix socket. `account` is the system account
    that runs the server when the program itself is root, which Postgres refuses to be.
    """

    home: Path | None = None
    port: int | None = None
    account: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    start_timeout_ms: int = 60_000


class StoreConfig(Struct, frozen=True, kw_only=True):
    """How the database is reached, and as whom.

    The lease has connections of its own: whatever else waits for one, it is renewed. Every
    statement ends after its timeout, on the server too.
    """

    url: str
    role: Literal["shard", "api", "owner"]
    connections: int = 4
    lease_connections: int = 1
    command_timeout_ms: int = 10_000
    lease_timeout_ms: int = 1_500
    connect_timeout_ms: int = 5_000
