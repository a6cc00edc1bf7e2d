"""Documents of one request share what is validated, and get the results they would get alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.jobs.documents import JOB_ID, NOW_US, TENANT_ID, as_document, new_parser

from wheelsched.core.targets.egress import EgressRules
from wheelsched.errors import InvalidDocument
from wheelsched.jobs.parse import JobParser
from wheelsched.jobs.validate import JobValidation
from wheelsched.ports import Registration
from wheelsched.wire.job import JobDocument

# A few values for each field: documents that share most of it are the interesting ones.
VALUES: dict[str, list[Any]] = {
    "name": ["a", "b", "not/valid\n"],
    "schedule": [
        *("@daily", "H 9 * * *", "every 5m", "0 25 * * *"),
        *("2030-01-01T00:00:00Z", "2030-01-02T00:00:00Z", "2020-01-01T00:00:00Z", "in 5m"),
        {"at": "2030-01-01T00:00:00Z"},
    ],
    "target": [
        {"url": "https://example.org/"},
        {"url": "https://example.org/", "headers": {"x-team": "a"}},
        {"url": "https://example.org/", "method": "SEND"},
    ],
    "timezone": [None, "Europe/Berlin", "Nowhere/At_All"],
    "dst": [None, {"gap": "skip"}],
    "jitter": [None, "5s", "2d"],
    "misfire": [None, {"policy": "all"}, {"grace": "1d", "window": "1s"}],
    "timeout": [None, "30s", "30"],
    "idempotency_key": [None, "{{job_id}}", "{{job_id}}:{{date}}"],
    "payload": [None, {"a": 1}],
    "tags": [None, {"team": "a"}],
}


@st.composite
def documents(draw: st.DrawFn) -> JobDocument:
    """One document. Most of its fields have the first of their values."""
    changed = draw(st.sets(st.sampled_from(sorted(VALUES)), max_size=3))
    fields = {
        name: draw(st.sampled_from(values)) if name in changed else values[0]
        for name, values in VALUES.items()
    }
    return as_document(**fields)


def parsed(parser: JobParser, document: JobDocument) -> Registration | list[tuple[str, str]]:
    """The job of a document, or the problems of it."""
    try:
        return parser.register(document, JOB_ID, TENANT_ID)
    except InvalidDocument as error:
        return [(each.pointer, str(each)) for each in error.errors]


DEFAULT = as_document(**{name: values[0] for name, values in VALUES.items()})
VARIANTS = [
    as_document(**{each: values[0] for each, values in VALUES.items()} | {name: value})
    for name, changed in VALUES.items()
    for value in changed[1:]
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_change_of_one_field_is_noticed(variant: JobDocument) -> None:
    for first, second in ((DEFAULT, variant), (variant, DEFAULT)):
        shared = new_parser()
        parsed(shared, first)
        assert parsed(shared, second) == parsed(new_parser(), second)


@given(st.lists(documents(), min_size=2, max_size=6))
def test_a_document_gets_the_same_result_after_others_as_alone(found: list[JobDocument]) -> None:
    shared = new_parser()
    for document in found:
        assert parsed(shared, document) == parsed(new_parser(), document)


def test_documents_that_differ_in_their_own_fields_are_validated_once() -> None:
    validation = JobValidation(NOW_US, EgressRules())
    first = validation.validate_new(as_document(name="a", tags={"team": "a"}))
    assert validation.validate_new(as_document(name="b", payload=[1])) is first


def test_one_offs_share_everything_but_their_time() -> None:
    validation = JobValidation(NOW_US, EgressRules())
    first = validation.validate_new(as_document(schedule="2030-01-01T00:00:00Z"))
    second = validation.validate_new(as_document(schedule="2030-01-02T00:00:00Z"))
    assert second.fields["target"] is first.fields["target"]
    assert (first.due_us, second.due_us) == (1_893_456_000_000_000, 1_893_542_400_000_000)


def test_the_first_due_time_is_unknown_if_it_depends_on_the_id() -> None:
    validation = JobValidation(NOW_US, EgressRules())
    assert validation.validate_new(as_document(schedule="H 9 * * *")).due_us is None
    assert validation.validate_new(as_document(schedule="0 9 * * *")).due_us is not None
