"""`up`, `shard` and `api`: commands that run until they are stopped.

Invariant: nothing beyond the loopback is answered without a token, whatever the options say.
"""

import asyncio
import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from msgspec.structs import replace
from rich.text import Text

from wheelsched.cli.output import err
from wheelsched.cli.written import Address, read_address
from wheelsched.config import (
    ApiConfig,
    DispatchConfig,
    EgressConfig,
    EmbeddedConfig,
    ProbeConfig,
    StoreConfig,
)
from wheelsched.core.egress import LOOPBACK
from wheelsched.core.request import MAX_REQUESTED
from wheelsched.daemon.api import ApiDaemonConfig, run_api
from wheelsched.daemon.line import Assignment
from wheelsched.daemon.opening import run_role
from wheelsched.daemon.processes import Child, run_processes
from wheelsched.daemon.shard import ShardDaemonConfig, run_shard
from wheelsched.daemon.up import Stack, UpConfig, run_up
from wheelsched.logs import LogLevel, write_logs

Auth = Literal["loopback", "required"]

ListenOption = Annotated[str, typer.Option(help="Where to answer, HOST:PORT.")]
AuthOption = Annotated[
    Auth, typer.Option(help="Whether programs of this machine need a token too.")
]
EgressOption = Annotated[
    list[str] | None,
    typer.Option(
        "--egress-allow",
        envvar="WHEELSCHED_EGRESS_ALLOW",
        metavar="CIDR",
        help="A private network that callbacks may go to; repeatable.",
    ),
]
RequestedOption = Annotated[
    int,
    typer.Option(
        min=1,
        envvar="WHEELSCHED_MAX_REQUESTED_RUNS",
        help="How many triggered or backfilled runs of one job may be unfinished at a time.",
    ),
]
LevelOption = Annotated[LogLevel, typer.Option(help="From which level on lines are logged.")]
RequiredDatabaseOption = Annotated[
    str,
    typer.Option(
        "--database-url",
        envvar="WHEELSCHED_DATABASE_URL",
        help="The address of the database, postgresql://…",
    ),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", envvar="WHEELSCHED_DATA_DIR", help="Where the embedded database lives."
    ),
]


def up(
    listen: ListenOption = "127.0.0.1:8420",
    data_dir: DataDirOption = None,
    shards: Annotated[int, typer.Option(min=1, max=64, help="How many shards to run.")] = 1,
    auth: AuthOption = "loopback",
    egress_allow: EgressOption = None,
    max_requested_runs: RequestedOption = MAX_REQUESTED,
    log_level: LevelOption = "warning",
) -> None:
    """Run everything: an embedded Postgres, shards and the API. Ctrl-C stops all of it.

    Callbacks may go to this machine.
    """
    write_logs(log_level)
    egress = EgressConfig(allow=(*LOOPBACK, *networks(egress_allow)))
    config = UpConfig(
        embedded=EmbeddedConfig(home=data_dir),
        api=replace(
            api_config(read_address(listen), auth, egress), max_requested_runs=max_requested_runs
        ),
        dispatch=DispatchConfig(egress=egress),
        shards=shards,
        log_level=log_level,
    )
    asyncio.run(run_up(config, partial(_announce, config=config)))


def shard(
    database_url: RequiredDatabaseOption,
    processes: Annotated[int, typer.Option(min=1, max=64, help="How many shards to run.")] = 1,
    probe: Annotated[
        str | None,
        typer.Option(help="Where to show metrics and health, HOST:PORT; the next ports for more."),
    ] = None,
    egress_allow: EgressOption = None,
    log_level: LevelOption = "info",
) -> None:
    """Run a shard, or several in one tree of processes."""
    write_logs(log_level)
    config = ShardDaemonConfig(
        store=StoreConfig(url=database_url, role="shard"),
        dispatch=DispatchConfig(egress=EgressConfig(allow=networks(egress_allow))),
        probe=None if probe is None else ProbeConfig(**read_address(probe)._asdict()),
    )
    if processes == 1:
        run_role(run_shard(config))
        return
    children = [
        Child(
            f"shard {number + 1}",
            Assignment(role=_numbered(config, number), log_level=log_level),
        )
        for number in range(processes)
    ]
    asyncio.run(run_processes(children))


def api(
    database_url: RequiredDatabaseOption,
    listen: ListenOption = "127.0.0.1:8420",
    auth: AuthOption = "loopback",
    egress_allow: EgressOption = None,
    max_requested_runs: RequestedOption = MAX_REQUESTED,
    connections_per_address: Annotated[
        int,
        typer.Option(min=1, help="Connections from one client address; raise it behind a proxy."),
    ] = ApiConfig().max_connections_per_address,
    log_level: LevelOption = "info",
) -> None:
    """Run the API. Give it the same --egress-allow as the shards."""
    write_logs(log_level)
    egress = EgressConfig(allow=networks(egress_allow))
    told = api_config(read_address(listen), auth, egress)
    config = ApiDaemonConfig(
        store=StoreConfig(url=database_url, role="api"),
        api=replace(
            told,
            max_requested_runs=max_requested_runs,
            max_connections_per_address=connections_per_address,
        ),
    )
    run_role(run_api(config))


def networks(written: list[str] | None) -> tuple[str, ...]:
    """Networks as options and as the environment write them, which is with commas."""
    return tuple(each.strip() for part in written or () for each in part.split(",") if each.strip())


def api_config(address: Address, auth: Auth, egress: EgressConfig) -> ApiConfig:
    """How the API answers there."""
    is_open = auth == "loopback" and address.is_loopback
    return ApiConfig(
        host=address.host,
        port=address.port,
        auth="loopback" if is_open else "required",
        egress=egress,
    )


def _numbered(config: ShardDaemonConfig, number: int) -> ShardDaemonConfig:
    """The configuration of one shard of several: each has a probe of its own."""
    if config.probe is None or config.probe.port == 0:
        return config
    return replace(config, probe=replace(config.probe, port=config.probe.port + number))


def _announce(stack: Stack, *, config: UpConfig) -> None:
    console = err()
    console.print(Text.assemble(("wheelsched is up", "bold green"), f" at {stack.url}"))
    console.print(f"  database   {stack.database_url}")
    if config.api.auth == "required":
        console.print("  tokens     wheelsched token create NAME --database-url …, as above")
    else:
        console.print("  tokens     none needed by programs of this machine")
        for line in _secret_lines(stack, config.embedded.home):
            console.print(f"  {line}")
    console.print("  Ctrl-C stops everything")


def _secret_lines(stack: Stack, data_dir: Path | None) -> list[str]:
    """How the worker gets the secret; the secret itself only at the start that made it."""
    place = "" if data_dir is None else f" --data-dir {shlex.quote(str(data_dir))}"
    command = f"wheelsched tenant secret{place}"
    if not stack.is_secret_new:
        return [f"secret     {command}"]
    return [f"secret     {stack.secret}", f"           pass it to the worker; later: {command}"]
