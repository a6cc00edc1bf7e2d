"""`doctor`: looks at everything that has to be right, and says what to do about what is not.

Invariant: it changes nothing, and every finding that is not fine comes with advice.
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

from wheelsched.cli.commands import DatabaseOption, JsonOption, TokenOption, UrlOption
from wheelsched.cli.exits import ExitCode
from wheelsched.cli.output import Output, cell, show
from wheelsched.cli.serving import DataDirOption
from wheelsched.cli.written import now
from wheelsched.client import ClientConfig, SyncClient
from wheelsched.client.client import DEFAULT_URL
from wheelsched.daemon.checkup import Finding, Verdict, check_database
from wheelsched.errors import ApiError, NotAllowed
from wheelsched.store.account import data_home, server_account
from wheelsched.wire.shard import ShardsAnswer

QUICK = ClientConfig(max_attempts=1, timeout_ms=5_000)
LITTLE_BYTES = 5 << 30
DEAD_WINDOW: Final = timedelta(days=1)
MOST_DEAD: Final = 10_000  # that are counted
STYLES = {Verdict.FINE: "green", Verdict.POOR: "yellow", Verdict.BAD: "bold red"}


def doctor(
    database_url: DatabaseOption = None,
    data_dir: DataDirOption = None,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check API, dead runs, breakers, database, schema, clock, leases, arming, hints and disk.

    Without --database-url only the API and the disk of the embedded database are checked.
    """
    findings = check_api(url, token)
    if database_url is not None:
        findings += asyncio.run(check_database(database_url))
    findings.append(check_disk(disk_to_check(database_url, data_dir)))
    show(Output(findings, _table(findings)), as_json=as_json)
    if any(finding.verdict is Verdict.BAD for finding in findings):
        raise typer.Exit(ExitCode.FAILED)


def check_api(url: str, token: str | None) -> list[Finding]:
    """What an API says of its shards and of dead runs, as far as the token may ask."""
    try:
        with SyncClient(url, token, config=QUICK) as client:
            return [*_check_shards(client, url), _check_dead(client)]
    except ApiError as error:
        return [
            Finding(
                subject="API",
                verdict=Verdict.BAD,
                detail=f"{url}: {error}",
                advice="start one with `wheelsched up` or `wheelsched api`; "
                "check --url and --token",
            )
        ]


def _check_shards(client: SyncClient, url: str) -> list[Finding]:
    try:
        shards = client.list_shards()
    except NotAllowed as error:
        return [Finding(subject="API", detail=f"{url} answers; shards are not checked: {error}")]
    return [judge_shards(url, shards), judge_breakers(shards)]


def _check_dead(client: SyncClient) -> Finding:
    try:
        dead = client.list_dead(since=now() - DEAD_WINDOW)
        return judge_dead(sum(1 for _ in islice(dead, MOST_DEAD + 1)))
    except NotAllowed as error:
        return Finding(subject="dead runs", detail=f"not checked: {error}")


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


def judge_dead(count: int) -> Finding:
    """What runs out of attempts say, of which at most one more than `MOST_DEAD` are counted."""
    if not count:
        return Finding(subject="dead runs", detail="none in the last day")
    shown = f"more than {MOST_DEAD:,}" if count > MOST_DEAD else f"{count:,}"
    return Finding(
        subject="dead runs",
        verdict=Verdict.POOR,
        detail=f"{shown} in the last day",
        advice="`wheelsched dead list --since 1d` shows them, `dead redrive` tries them again",
    )


def judge_breakers(shards: ShardsAnswer) -> Finding:
    """What the shards say of targets that they call no more for a while."""
    breakers = [each for shard in shards.items for each in shard.breakers]
    if not breakers:
        return Finding(subject="breakers", detail="none is open")
    first = breakers[0]
    name = first.target if first.job_id is None else f"job {first.job_id}"
    more = f" and {len(breakers) - 1:,} more" if len(breakers) > 1 else ""
    return Finding(
        subject="breakers",
        verdict=Verdict.POOR,
        detail=f"open for {name}{more}: {first.error}; "
        f"next probe at {first.next_probe_at.isoformat()}",
        advice="runs wait until a probe succeeds: repair the worker, or pause the job",
    )


def disk_to_check(database_url: str | None, data_dir: Path | None) -> Path | None:
    """The data directory of the embedded database; None when the database is another one."""
    if data_dir is not None:
        return data_dir
    home = data_home(server_account(None))
    if database_url is not None:
        hosts = parse_qs(urlsplit(database_url).query).get("host", [""])
        home = Path(hosts[0]).parent
    return home if (home / "data").is_dir() else None


def check_disk(directory: Path | None) -> Finding:
    """How much room there is where a directory is."""
    if directory is None:
        return Finding(
            subject="disk",
            detail="not checked: only the server of the database sees its disk; "
            "run doctor there with --data-dir",
        )
    try:
        usage = shutil.disk_usage(directory)
    except OSError as error:
        return Finding(
            subject="disk",
            verdict=Verdict.BAD,
            detail=f"{directory} cannot be checked: {error.strerror}",
            advice="pass the data directory of the database with --data-dir",
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
