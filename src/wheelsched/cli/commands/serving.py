"""`up`, `shard` and `api`: commands that run until they are stopped.

Invariant: requests from beyond loopback always need a token, whatever the options are.
"""

import asyncio
import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from msgspec.structs import replace
from rich.text import Text

from wheelsched.cli.option_parsers import Address, read_address
from wheelsched.cli.output import err
from wheelsched.config import (
    ApiConfig,
    DispatchConfig,
    EgressConfig,
    EmbeddedConfig,
    GrpcConfig,
    LinkConfig,
    ProbeConfig,
    StoreConfig,
)
from wheelsched.core.request import MAX_REQUESTED
from wheelsched.core.targets.egress import LOOPBACK
from wheelsched.daemon.api import ApiDaemonConfig, run_api
from wheelsched.daemon.bootstrap import run_role
from wheelsched.daemon.certificates import Certifiable, Certifier, report_to_parent
from wheelsched.daemon.child_channel import Assignment
from wheelsched.daemon.processes import Child, run_processes
from wheelsched.daemon.shard import ShardDaemonConfig, run_shard
from wheelsched.daemon.up import Stack, UpConfig, run_up
from wheelsched.extras import require
from wheelsched.logs import LogLevel, write_logs

Auth = Literal["loopback", "required"]

ListenOption = Annotated[str, typer.Option(help="Address to listen on, HOST:PORT.")]
GrpcOption = Annotated[
    str | None,
    typer.Option(
        "--grpc",
        metavar="HOST:PORT",
        help="Also serve workers over gRPC on this address; requires wheelsched[grpc].",
    ),
]
AuthOption = Annotated[Auth, typer.Option(help="Whether local programs need a token too.")]
EgressOption = Annotated[
    list[str] | None,
    typer.Option(
        "--egress-allow",
        envvar="WHEELSCHED_EGRESS_ALLOW",
        metavar="CIDR",
        help="Private network that callbacks may reach; repeatable.",
    ),
]
RequestedOption = Annotated[
    int,
    typer.Option(
        min=1,
        envvar="WHEELSCHED_MAX_REQUESTED_RUNS",
        help="Maximum unfinished triggered or backfilled runs per job.",
    ),
]
LevelOption = Annotated[LogLevel, typer.Option(help="Minimum log level.")]
RequiredDatabaseOption = Annotated[
    str,
    typer.Option(
        "--database-url",
        envvar="WHEELSCHED_DATABASE_URL",
        help="Database URL, postgresql://…",
    ),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", envvar="WHEELSCHED_DATA_DIR", help="Data directory of the embedded database."
    ),
]


def up(
    listen: ListenOption = "127.0.0.1:8420",
    grpc: GrpcOption = None,
    data_dir: DataDirOption = None,
    shards: Annotated[int, typer.Option(min=1, max=64, help="Number of shards to run.")] = 1,
    auth: AuthOption = "loopback",
    egress_allow: EgressOption = None,
    max_requested_runs: RequestedOption = MAX_REQUESTED,
    log_level: LevelOption = "warning",
) -> None:
    """Run everything: an embedded Postgres, shards and the API. Ctrl-C stops it all.

    Callbacks may go to this machine.
    """
    grpc_address = _read_grpc(grpc)
    write_logs(log_level)
    egress = EgressConfig(allow=(*LOOPBACK, *networks(egress_allow)))
    config = UpConfig(
        embedded=EmbeddedConfig(home=data_dir),
        api=replace(
            api_config(read_address(listen), auth, egress, grpc_address),
            max_requested_runs=max_requested_runs,
        ),
        dispatch=DispatchConfig(egress=egress),
        shards=shards,
        log_level=log_level,
    )
    asyncio.run(run_up(config, partial(_announce, config=config)))


def shard(
    database_url: RequiredDatabaseOption,
    processes: Annotated[int, typer.Option(min=1, max=64, help="Number of shards to run.")] = 1,
    probe: Annotated[
        str | None,
        typer.Option(
            help="Address of metrics and health, HOST:PORT; further shards use the next ports."
        ),
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(
            help="Address for the API processes that hand runs to workers, HOST:PORT, in a private "
            "network; further shards use the next ports. Without it, runs of queues wait."
        ),
    ] = None,
    link_address: Annotated[
        str | None,
        typer.Option(help="Address at which the API reaches --link, HOST:PORT, if different."),
    ] = None,
    egress_allow: EgressOption = None,
    parent: Annotated[
        bool,
        typer.Option(
            help="Run a single shard under a small parent process, which reports its death."
        ),
    ] = True,
    log_level: LevelOption = "info",
) -> None:
    """Run one shard, or several in a process tree."""
    del parent  # the process was forked already, before this module was imported
    write_logs(log_level)
    config = ShardDaemonConfig(
        store=StoreConfig(url=database_url, role="shard"),
        dispatch=DispatchConfig(egress=EgressConfig(allow=networks(egress_allow))),
        probe=None if probe is None else ProbeConfig(**read_address(probe)._asdict()),
        link=None if link is None else link_config(link, link_address),
    )
    if processes == 1:
        certifiable = Certifiable(
            store=config.store, lease_ttl_us=config.shard.lease_ttl_us, log_level=log_level
        )
        run_role(run_shard(config, on_joining=report_to_parent(certifiable)))
        return
    children = [
        Child(
            f"shard {number + 1}",
            Assignment(role=numbered(config, number), log_level=log_level),
        )
        for number in range(processes)
    ]
    certifier = Certifier(config.store, config.shard.lease_ttl_us)
    asyncio.run(run_processes(children, certifier))


def api(
    database_url: RequiredDatabaseOption,
    listen: ListenOption = "127.0.0.1:8420",
    grpc: GrpcOption = None,
    auth: AuthOption = "loopback",
    egress_allow: EgressOption = None,
    max_requested_runs: RequestedOption = MAX_REQUESTED,
    connections_per_address: Annotated[
        int,
        typer.Option(
            min=1, help="Maximum connections per client address; raise it behind a proxy."
        ),
    ] = ApiConfig().max_connections_per_address,
    log_level: LevelOption = "info",
) -> None:
    """Run the API. Use the same --egress-allow as for the shards."""
    grpc_address = _read_grpc(grpc)
    write_logs(log_level)
    egress = EgressConfig(allow=networks(egress_allow))
    base = api_config(read_address(listen), auth, egress, grpc_address)
    config = ApiDaemonConfig(
        store=StoreConfig(url=database_url, role="api"),
        api=replace(
            base,
            max_requested_runs=max_requested_runs,
            max_connections_per_address=connections_per_address,
        ),
    )
    run_role(run_api(config))


def networks(options: list[str] | None) -> tuple[str, ...]:
    """Networks from the options, or comma-separated from the environment."""
    return tuple(each.strip() for part in options or () for each in part.split(",") if each.strip())


def api_config(
    address: Address, auth: Auth, egress: EgressConfig, grpc: Address | None = None
) -> ApiConfig:
    """The API configuration for its addresses. Without a token, all of them must be loopback."""
    addresses = (address,) if grpc is None else (address, grpc)
    is_open = auth == "loopback" and all(each.is_loopback for each in addresses)
    return ApiConfig(
        host=address.host,
        port=address.port,
        auth="loopback" if is_open else "required",
        egress=egress,
        grpc=None if grpc is None else GrpcConfig(host=grpc.host, port=grpc.port),
    )


def _read_grpc(option: str | None) -> Address | None:
    """The address of --grpc, if the extra is installed."""
    if option is None:
        return None
    require("grpc")
    return read_address(option)


def link_config(link: str, address: str | None) -> LinkConfig:
    """The listener of a shard, and where the API reaches it."""
    listener = read_address(link)
    reached = None if address is None else str(read_address(address))
    config = LinkConfig(host=listener.host, port=listener.port, address=reached)
    if not config.is_reachable:
        raise typer.BadParameter(
            f"no process can connect to {listener.host}; add --link-address HOST:PORT, or name one "
            "address in --link"
        )
    return config


def numbered(config: ShardDaemonConfig, number: int) -> ShardDaemonConfig:
    """The configuration of one of several shards; each has its own ports."""
    probe, link = config.probe, config.link
    if probe is not None and probe.port:
        probe = replace(probe, port=probe.port + number)
    if link is not None and link.port:
        reached = None if link.address is None else read_address(link.address)
        if reached is not None:
            reached = reached._replace(port=reached.port + number)
        address = None if reached is None else str(reached)
        link = replace(link, port=link.port + number, address=address)
    return replace(config, probe=probe, link=link)


def _announce(stack: Stack, *, config: UpConfig) -> None:
    console = err()
    console.print(Text.assemble(("wheelsched is up", "bold green"), f" at {stack.url}"))
    if stack.grpc is not None:
        console.print(f"  gRPC       {stack.grpc}")
    console.print(f"  database   {stack.database_url}")
    if config.api.auth == "required":
        console.print("  tokens     wheelsched token create NAME --database-url …, as above")
    else:
        console.print("  tokens     not required for local programs")
        for line in _secret_lines(stack, config.embedded.home):
            console.print(f"  {line}")
    console.print("  press Ctrl-C to stop")


def _secret_lines(stack: Stack, data_dir: Path | None) -> list[str]:
    """How to get the signing secret; the secret itself is shown only when it was just created."""
    place = "" if data_dir is None else f" --data-dir {shlex.quote(str(data_dir))}"
    command = f"wheelsched tenant secret{place}"
    if not stack.is_secret_new:
        return [f"secret     {command}"]
    return [
        f"secret     {stack.secret}",
        f"           pass it to the worker; show it again: {command}",
    ]
