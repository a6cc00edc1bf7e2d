"""`doctor`: looks at everything that has to be right, and says what to do about what is not.

Invariant: it changes nothing, and every finding that is not fine comes with advice.
"""

import asyncio
import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from wheelsched.cli.commands import DatabaseOption, JsonOption, TokenOption, UrlOption
from wheelsched.cli.exits import ExitCode
from wheelsched.cli.output import Output, cell, show
from wheelsched.client import ClientConfig, SyncClient
from wheelsched.client.client import DEFAULT_URL
from wheelsched.daemon.checkup import Finding, Verdict, check_database
from wheelsched.errors import ApiError
from wheelsched.wire.shard import ShardsAnswer

QUICK = ClientConfig(max_attempts=1, timeout_ms=5_000)
LITTLE_BYTES = 5 << 30
STYLES = {Verdict.FINE: "green", Verdict.POOR: "yellow", Verdict.BAD: "bold red"}


def doctor(
    database_url: DatabaseOption = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Whose disk to look at: the database's data directory.")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check API, database, schema, clock, leases, hints and disk, and say what to do.

    Without --database-url only the API and the disk are looked at.
    """
    findings = [_check_api(url, token)]
    if database_url is not None:
        findings += asyncio.run(check_database(database_url))
    findings.append(check_disk(data_dir or Path.cwd()))
    show(Output(findings, _table(findings)), as_json=as_json)
    if any(finding.verdict is Verdict.BAD for finding in findings):
        raise typer.Exit(ExitCode.FAILED)


def _check_api(url: str, token: str | None) -> Finding:
    try:
        with SyncClient(url, token, config=QUICK) as client:
            shards = client.list_shards()
    except ApiError as error:
        return Finding(
            subject="API",
            verdict=Verdict.BAD,
            detail=f"{url}: {error}",
            advice="start one with `wheelsched up` or `wheelsched api`; check --url and --token",
        )
    return judge_shards(url, shards)


def judge_shards(url: str, shards: ShardsAnswer) -> Finding:
    """What the API at an address says of the shards."""
    living = [shard for shard in shards.items if not shard.is_expired]
    if not living:
        gone = f"; {len(shards.items)} leases have expired" if shards.items else ""
        return Finding(
            subject="API",
            verdict=Verdict.BAD,
            detail=f"{url} answers, and there is no living shard{gone}",
            advice="start one with `wheelsched shard --database-url …`: without it nothing fires",
        )
    detail = f"{url} answers, {len(living)} shards"
    expired = len(shards.items) - len(living)
    if expired or shards.free_partitions:
        return Finding(
            subject="API",
            verdict=Verdict.POOR,
            detail=f"{detail}, {expired} leases have expired, "
            f"{len(shards.free_partitions)} partitions are nobody's",
            advice="ask again in ten seconds; if it stays so, look into the logs of the shards",
        )
    return Finding(subject="API", detail=detail)


def check_disk(directory: Path) -> Finding:
    """How much room there is where a directory is."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError as error:
        return Finding(
            subject="disk",
            verdict=Verdict.BAD,
            detail=f"cannot be looked at: {error}",
            advice="name a directory of this machine that you may enter with --data-dir",
        )
    detail = f"{usage.free / (1 << 30):.1f} GiB free at {directory}"
    if usage.free < LITTLE_BYTES:
        return Finding(
            subject="disk",
            verdict=Verdict.POOR,
            detail=detail,
            advice="make room: a database without any stops",
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
