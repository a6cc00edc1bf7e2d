"""Job documents for the tests of this folder."""

from typing import Any, Final
from uuid import UUID

import msgspec

from wheelsched.core.targets.egress import EgressRules
from wheelsched.jobs.parse import JobParser
from wheelsched.wire.job import JobDocument

NOW_US: Final = 1_780_000_000_000_000  # 2026-05-28T20:26:40Z
JOB_ID: Final = UUID(int=7)
TENANT_ID: Final = UUID(int=1)
REQUIRED: Final[dict[str, Any]] = {
    "name": "a",
    "schedule": "@daily",
    "target": {"url": "https://example.org/"},
}


def new_parser(now_us: int = NOW_US) -> JobParser:
    return JobParser(now_us, EgressRules())


def as_json(**fields: Any) -> bytes:
    """The smallest document, with these fields."""
    return msgspec.json.encode(REQUIRED | fields)


def as_document(**fields: Any) -> JobDocument:
    return msgspec.json.decode(as_json(**fields), type=JobDocument)
