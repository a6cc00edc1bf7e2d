"""The documents of jobs, from what an application passes in Python."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter, computed_field
from pydantic.alias_generators import to_camel

from wheelsched.errors import InvalidPayload, InvalidSchedulerOption
from wheelsched.scheduler.documents import Times, encode_payload, job_document, read_times


class Renamed(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)
    order_number: int


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    net: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def gross(self) -> int:
        return 2 * self.net


RENAMED = Renamed.model_validate({"orderNumber": 7})


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (RENAMED, Renamed),
        (Strict(net=7), Strict),
        ([Strict(net=7)], list[Strict]),
        ({"order": RENAMED}, dict[str, Renamed]),
    ],
)
def test_pydantic_models_are_written_as_they_are_read(payload: object, kind: Any) -> None:
    assert TypeAdapter(kind).validate_json(bytes(encode_payload(payload))) == payload


def _recursive() -> list[object]:
    it: list[object] = []
    it.append(it)
    return it


@pytest.mark.parametrize(
    "payload", [object(), {"sent": print}, {object(): 1}, "\ud800", _recursive()], ids=type
)
def test_a_payload_that_is_not_json_is_refused(payload: object) -> None:
    with pytest.raises(InvalidPayload, match="cannot be encoded as JSON"):
        encode_payload(payload)


def test_a_period_of_zero_is_given() -> None:
    assert read_times(Times(every=timedelta(0)), has_timezone=False) == {"every": "0s"}


@pytest.mark.parametrize("tag", ["application", "declared", "release", "undeclared"])
def test_tags_of_the_scheduler_are_reserved(tag: str) -> None:
    """A job that an application tags as declared would be deleted as undeclared."""
    make: Callable[..., dict[str, object]] = job_document
    with pytest.raises(InvalidSchedulerOption, match=f"sets the tag '{tag}' itself"):
        make("one", "every 1h", "queue", msgspec.Raw(b"null"), {"tags": {tag: "x"}})
