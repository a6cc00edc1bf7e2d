"""The JSON document of a job in its row: its format is stored, so it changes only on purpose."""

from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import fields, replace

from wheelsched.core.model import HttpTarget, Job, QueueTarget
from wheelsched.schedule.spec import Spec
from wheelsched.store.definition import COLUMNS, decode_definition, encode_definition

FIELDS = {each.name: each for each in fields(Job)}
JOB = Job(
    job_id=UUID(int=7),
    tenant_id=UUID(int=1),
    name="a",
    schedule=Raw(b'"@daily"'),
    spec=Spec(kind="cron", expression="0 0 * * *"),
    anchor_us=1,
    target=HttpTarget(url="https://example.org/"),
    payload=Raw(b'{"b":1, "a":[]}'),
    created_at_us=2,
    updated_at_us=3,
)
STORED: dict[str, Any] = {
    "schedule": "@daily",
    "spec": {
        "kind": "cron",
        "expression": "0 0 * * *",
        "timezone": "UTC",
        "dst_gap": "shift",
        "dst_overlap": "first",
        "start_us": None,
        "end_us": None,
        "exclude": [],
        "jitter_us": 0,
    },
    "anchor_us": 1,
    "target": {"url": "https://example.org/", "method": "POST", "headers": {}, "batch": 1},
    "payload": {"b": 1, "a": []},
    "misfire": {
        "policy": "once",
        "grace_us": 60_000_000,
        "window_us": 3_600_000_000,
        "max_missed": 100,
    },
    "overlap": {"policy": "skip", "max_concurrent": None},
    "retry": {
        "max_attempts": 4,
        "backoff": "exponential",
        "initial_us": 1_000_000,
        "max_us": 300_000_000,
    },
    "timeout_us": 120_000_000,
    "priority": 0,
    "idempotency_key": "{{job_id}}:{{scheduled_at_unix}}",
}


def test_every_default_is_stored() -> None:
    assert msgspec.json.decode(encode_definition(JOB)) == STORED


def test_json_of_the_user_is_stored_byte_for_byte() -> None:
    assert b'"payload":{"b":1, "a":[]}' in encode_definition(JOB)


def test_a_document_is_read_as_it_was_written() -> None:
    definition = decode_definition(encode_definition(JOB))
    assert definition == {name: getattr(JOB, name) for name in STORED}
    assert bytes(definition["payload"]) == b'{"b":1, "a":[]}'


def test_every_field_is_in_the_document_or_in_a_column() -> None:
    assert STORED.keys() | COLUMNS == FIELDS.keys()


@pytest.mark.parametrize("name", [name for name in STORED if not FIELDS[name].required])
def test_a_document_from_before_a_field_existed_gets_its_default(name: str) -> None:
    older = {key: value for key, value in STORED.items() if key != name}
    definition = decode_definition(msgspec.json.encode(older))
    assert definition[name] == FIELDS[name].default


@pytest.mark.parametrize("name", [name for name in STORED if FIELDS[name].required])
def test_a_document_without_a_required_field_is_unreadable(name: str) -> None:
    broken = {key: value for key, value in STORED.items() if key != name}
    with pytest.raises(msgspec.ValidationError, match=name):
        decode_definition(msgspec.json.encode(broken))


def test_a_queue_has_a_name_of_its_own_in_the_document() -> None:
    target = QueueTarget(queue="billing", claim_within_us=60_000_000)
    document = encode_definition(replace(JOB, target=target))
    assert decode_definition(document)["target"] == target
    stored = {key: value for key, value in STORED.items() if key != "target"}
    stored["queue_target"] = {"queue": "billing", "claim_within_us": 60_000_000}
    assert msgspec.json.decode(document) == stored
