"""`doctor`: checks the installation and advises what to do about problems.

Invariant: it changes nothing, and every problem comes with advice.
"""

import asyncio
import shutil
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

import typer
from rich.table import Table
from rich.text import Text

from wheelsched.cli.commands.serving import DataDirOption
from wheelsched.cli.exit_codes import ExitCode
from wheelsched.cli.option_parsers import now
from wheelsched.cli.output import Output, cell, show
from wheelsched.cli.shared import DatabaseOption, JsonOption, TokenOption, UrlOption
from wheelsched.client import ClientConfig, SyncClient
from wheelsched.client.client import DEFAULT_URL
from wheelsched.daemon.checkup import LOSS_ADVICE, Finding, Health, check_database
from wheelsched.embedded.account import data_home, server_account
from wheelsched.embedded.cluster import home_of
from wheelsched.errors import ApiError, NotAllowed
from wheelsched.values.counting import counted
from wheelsched.wire.instant import instant_text
from wheelsched.wire.shard import ShardsAnswer

QUICK = ClientConfig(max_attempts=1, timeout_ms=5_000)
LOW_DISK_BYTES = 5 << 30
DEAD_WINDOW: Final = timedelta(days=1)
MAX_DEAD_COUNTED: Final = 10_000
STYLES = {Health.OK: "green", Health.WARNING: "yellow", Health.FAILED: "bold red"}


def doctor(
    database_url: DatabaseOption = None,
    data_dir: DataDirOption = None,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check API, runs, breakers, database, schema, leases, arming, replication, hints and disk.

    Without --database-url, only the API and the disk of the embedded database are checked.
    """
    findings = check_api(url, token)
    if database_url is not None:
        findings += asyncio.run(check_database(database_url))
    findings.append(check_disk(disk_to_check(database_url, data_dir)))
    show(Output(findings, _table(findings)), as_json=as_json)
    if any(finding.verdict is Health.FAILED for finding in findings):
        raise typer.Exit(ExitCode.FAILED)


def check_api(url: str, token: str | None) -> list[Finding]:
    """Checks shards and dead runs over the API, as far as the token permits."""
    try:
        with SyncClient(url, token, config=QUICK) as client:
            return [*_check_shards(client, url), _check_dead(client)]
    except ApiError as error:
        return [
            Finding(
                subject="API",
                verdict=Health.FAILED,
                detail=f"{url}: {error}",
                advice="start one with `wheelsched up` or `wheelsched api`; "
                "check --url and --token",
            )
        ]


def _check_shards(client: SyncClient, url: str) -> list[Finding]:
    try:
        shards = client.list_shards()
    except NotAllowed as error:
        return [
            Finding(subject="API", detail=f"{url} is reachable; shards were not checked: {error}")
        ]
    return [assess_shards(url, shards), assess_breakers(shards), *assess_losses(shards)]


def _check_dead(client: SyncClient) -> Finding:
    try:
        dead = client.list_dead(since=now() - DEAD_WINDOW)
        return assess_dead(sum(1 for _ in islice(dead, MAX_DEAD_COUNTED + 1)))
    except NotAllowed as error:
        return Finding(subject="dead runs", detail=f"not checked: {error}")


def assess_shards(url: str, shards: ShardsAnswer) -> Finding:
    """The finding about the shards that the API lists."""
    living = [shard for shard in shards.items if not shard.is_expired]
    if not living:
        gone = f"; {counted(len(shards.items), 'expired lease')}" if shards.items else ""
        return Finding(
            subject="API",
            verdict=Health.FAILED,
            detail=f"{url} is reachable, but no shard is alive{gone}",
            advice="start one with `wheelsched shard --database-url …`; without it no job fires",
        )
    detail = f"{url} is reachable, {counted(len(living), 'shard')} alive"
    expired = len(shards.items) - len(living)
    if expired or shards.free_partitions:
        return Finding(
            subject="API",
            verdict=Health.WARNING,
            detail=f"{detail}, {counted(expired, 'expired lease')}, "
            f"{counted(len(shards.free_partitions), 'partition')} without an owner",
            advice="check again in ten seconds; if it persists, see the logs of the shards",
        )
    return Finding(subject="API", detail=detail)


def assess_dead(count: int) -> Finding:
    """The finding about dead runs; `count` is at most `MAX_DEAD_COUNTED` + 1."""
    if not count:
        return Finding(subject="dead runs", detail="none in the last day")
    shown = f"more than {MAX_DEAD_COUNTED:,}" if count > MAX_DEAD_COUNTED else f"{count:,}"
    return Finding(
        subject="dead runs",
        verdict=Health.WARNING,
        detail=f"{shown} in the last day",
        advice="list them with `wheelsched dead list --since 1d`, retry them with `dead redrive`",
    )


def assess_breakers(shards: ShardsAnswer) -> Finding:
    """The finding about open circuit breakers."""
    breakers = [each for shard in shards.items for each in shard.breakers]
    if not breakers:
        return Finding(subject="breakers", detail="none open")
    first = breakers[0]
    name = first.target if first.job_id is None else f"job {first.job_id}"
    more = f" and {len(breakers) - 1:,} more" if len(breakers) > 1 else ""
    return Finding(
        subject="breakers",
        verdict=Health.WARNING,
        detail=f"open for {name}{more}: {first.error}; "
        f"next probe at {instant_text(first.next_probe_at)}",
        advice="runs wait until a probe succeeds; fix the worker, or pause the job",
    )


def assess_losses(shards: ShardsAnswer) -> list[Finding]:
    """The finding about committed data that the database has lost; none if it lost nothing."""
    noticed = [shard.went_back_at for shard in shards.items if shard.went_back_at is not None]
    if not noticed:
        return []
    return [
        Finding(
            subject="lost data",
            verdict=Health.WARNING,
            detail="the database went back to an older state; a shard last noticed it at "
            f"{instant_text(max(noticed))}",
            advice=LOSS_ADVICE,
        )
    ]


def disk_to_check(database_url: str | None, data_dir: Path | None) -> Path | None:
    """The data directory of the embedded database; None if the database is not embedded."""
    if data_dir is not None:
        return data_dir
    if database_url is not None:
        hosts = parse_qs(urlsplit(database_url).query).get("host", [""])
        return home_of(Path(hosts[0])) if hosts[0].startswith("/") else None
    home = data_home(server_account(None))
    return home if (home / "data").is_dir() else None


def check_disk(directory: Path | None) -> Finding:
    """The finding about the free disk space at a directory."""
    if directory is None:
        return Finding(
            subject="disk",
            detail="not checked: the disk is visible only on the database server; "
            "run doctor there with --data-dir",
        )
    try:
        usage = shutil.disk_usage(directory)
    except OSError as error:
        return Finding(
            subject="disk",
            verdict=Health.FAILED,
            detail=f"cannot check {directory}: {error.strerror}",
            advice="pass the data directory of the database with --data-dir",
        )
    detail = f"{usage.free / (1 << 30):.1f} GiB free at {directory}"
    if usage.free < LOW_DISK_BYTES:
        return Finding(
            subject="disk",
            verdict=Health.WARNING,
            detail=detail,
            advice="free some space; the database stops when the disk is full",
        )
    return Finding(subject="disk", detail=detail)


def _table(findings: list[Finding]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        verdict = Text(finding.verdict.value, style=STYLES[finding.verdict])
        table.add_row(verdict, finding.subject, cell(finding.detail))
        if finding.advice is not None:
            table.add_row("", "", Text(f"→ {finding.advice}", style="bold"))
    return table
