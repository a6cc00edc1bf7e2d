"""Applying an export changes nothing."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.api import Api

from wheelsched.cli.commands.apply import Action, plan_all
from wheelsched.cli.export import manifest_of, sparse, to_yaml
from wheelsched.cli.manifest import read_entries
from wheelsched.client import SyncClient

JOB: dict[str, Any] = {
    "name": "a",
    "schedule": "@daily",
    "target": {"url": "https://example.org/hooks"},
}
FULL: dict[str, Any] = JOB | {
    "schedule": {"every": "5m", "end": "2100-01-01T00:00:00Z"},
    "timezone": "Europe/Berlin",
    "target": JOB["target"] | {"method": "PUT", "headers": {"x-team": "on"}, "batch": 7},
    "payload": {"a": [1, 1.5, None, True, "010", "12:30:00", "~"], "b": {}},
    "misfire": {"policy": "all", "grace": "30s", "window": "2h", "max_missed": 9},
    "overlap": {"policy": "queue", "max_concurrent": 3},
    "retry": {"max_attempts": 9, "backoff": "linear", "initial": "2s", "max": "1m"},
    "timeout": "30s",
    "jitter": "5s",
    "priority": 3,
    "dst": {"gap": "skip", "overlap": "both"},
    "idempotency_key": "{{job_id}}:{{date}}",
    "tags": {"team": "yes"},
}
QUEUES: list[dict[str, Any]] = [
    JOB | {"name": "queue", "target": {"queue": "billing"}},
    JOB | {"name": "queue, patient", "target": {"queue": "billing", "claim_within": "2h"}},
]

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
WORDS = st.sampled_from(["on", "No", "~", "null", "1e3", ".5", "0o7", "=", "<<", "- a", "a: b", ""])
TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | TEXT
    | WORDS
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.dictionaries(TEXT | WORDS, inner) | st.lists(inner),
    max_leaves=8,
)


async def test_applying_an_export_changes_nothing(api: Api, tmp_path: Path) -> None:
    def check() -> None:
        with SyncClient(api.url, api.token) as client:
            client.create_job(JOB)  # type: ignore[arg-type]
            client.create_job(FULL | {"name": "full"})  # type: ignore[arg-type]
            for job in QUEUES:
                client.create_job(job)  # type: ignore[arg-type]
            manifest = manifest_of(client.list_jobs())
            assert manifest["jobs"] == [JOB, FULL | {"name": "full"}, *QUEUES]
            for name, text in (
                ("jobs.yaml", to_yaml(manifest)),
                ("jobs.json", msgspec.json.encode(manifest).decode()),
            ):
                file = tmp_path / name
                file.write_text(text)
                planned = plan_all(client, read_entries(str(file)))
                assert [each.step.action for each in planned] == [Action.KEEP] * 4

    await asyncio.to_thread(check)


async def test_any_payload_survives_export(api: Api, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"

    def check() -> None:
        with SyncClient(api.url, api.token) as client:
            job = client.create_job(JOB)  # type: ignore[arg-type]

            @settings(max_examples=100)
            @given(TREES)
            def export(payload: Any) -> None:
                raw = msgspec.Raw(msgspec.json.encode(payload))
                text = to_yaml(manifest_of([msgspec.structs.replace(job, payload=raw)]))
                assert all(line.isprintable() for line in text.split("\n"))
                file.write_text(text)
                (entry,) = read_entries(str(file))
                assert entry.document is not None
                read = msgspec.json.decode(entry.document.payload)
                assert msgspec.json.encode(read) == bytes(raw)

            export()

    await asyncio.to_thread(check)


async def test_defaults_are_omitted_and_ambiguous_strings_quoted(api: Api) -> None:
    def check() -> None:
        with SyncClient(api.url, api.token) as client:
            written = JOB | {"retry": {"max_attempts": 9}, "payload": {"a": "yes", "b": "0o7"}}
            job = client.create_job(written)  # type: ignore[arg-type]
            assert sparse(job) == written
            read = yaml.safe_load(to_yaml(manifest_of([job])))  # by YAML 1.1
            assert read == {"jobs": [written]}

    await asyncio.to_thread(check)
