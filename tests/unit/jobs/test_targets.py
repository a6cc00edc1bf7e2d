"""Targets of documents: defaults, problems and masked headers."""

import pytest

from wheelsched.core.model import HttpTarget, QueueTarget
from wheelsched.core.targets.egress import EgressRules
from wheelsched.errors import InvalidDocument, WrongType
from wheelsched.jobs.targets import (
    describe_target,
    headers_of,
    mask_target,
    normalize_target,
    parse_target,
    restore_masked,
)
from wheelsched.wire.job import TargetDocument

URL = "https://example.org/hooks"
STORED = HttpTarget(url=URL, headers={"authorization": "s3cret", "x-team": "a"})


def test_what_is_left_out_has_its_default() -> None:
    document = TargetDocument(url=URL)
    assert parse_target(document, EgressRules()) == HttpTarget(url=URL)
    assert normalize_target(document) == describe_target(HttpTarget(url=URL))


def test_every_problem_is_reported() -> None:
    document = TargetDocument(
        url="ftp://x", method="SEND", headers={"a b": "", "authorization": "***"}, batch=0
    )
    with pytest.raises(InvalidDocument) as refused:
        parse_target(document, EgressRules())
    assert [each.pointer for each in refused.value.errors] == [
        *("/target/url", "/target/method", "/target/headers/a b"),
        *("/target/headers/authorization", "/target/batch"),
    ]


@pytest.mark.parametrize("batch", [0, 1_001])
def test_a_batch_out_of_range_is_refused(batch: int) -> None:
    with pytest.raises(InvalidDocument, match="is out of range; expected 1 to 1,000"):
        parse_target(TargetDocument(url=URL, batch=batch), EgressRules())


def test_a_target_is_described_with_its_credentials_and_masked_for_readers() -> None:
    document = describe_target(STORED)
    assert document.headers == STORED.headers
    assert mask_target(document).headers == {"authorization": "***", "x-team": "a"}
    assert mask_target(TargetDocument(url=URL)).headers is None


def test_a_mask_is_replaced_by_the_stored_value_for_the_same_origin_only() -> None:
    masked = {"authorization": "***"}
    same = TargetDocument(url="https://example.org/other", headers=masked)
    other = TargetDocument(url="https://example.com/hooks", headers=masked)
    assert restore_masked(same, STORED).headers == {"authorization": "s3cret"}
    assert restore_masked(other, STORED) == other


def test_a_queue_has_an_hour_by_default() -> None:
    document = TargetDocument(queue="billing")
    target = QueueTarget(queue="billing", claim_within_us=3_600_000_000)
    assert parse_target(document, EgressRules()) == target
    assert normalize_target(document) == TargetDocument(queue="billing", claim_within="1h")
    assert describe_target(target) == normalize_target(document)
    assert mask_target(document) == document
    assert headers_of(target) == {}


@pytest.mark.parametrize("claim_within", ["1s", "4w2d", "1h30m"])
def test_a_run_waits_in_its_queue_as_long_as_its_job_says(claim_within: str) -> None:
    document = TargetDocument(queue="billing", claim_within=claim_within)
    assert describe_target(parse_target(document, EgressRules())) == document


def problems_of(**fields: object) -> dict[str, str]:
    with pytest.raises(InvalidDocument) as refused:
        parse_target(TargetDocument(**fields), EgressRules())  # type: ignore[arg-type]
    return {each.pointer: str(each) for each in refused.value.errors}


@pytest.mark.parametrize("name", ["", "a b", "-a", "a/b", "ä", "a" * 101, "a\n"])
def test_an_invalid_name_of_a_queue_is_refused(name: str) -> None:
    assert problems_of(queue=name).keys() == {"/target/queue"}


@pytest.mark.parametrize("name", ["a", "A.b_c:d-9", "0", "a" * 100])
def test_a_valid_name_of_a_queue_is_kept(name: str) -> None:
    target = parse_target(TargetDocument(queue=name), EgressRules())
    assert target == QueueTarget(queue=name)


@pytest.mark.parametrize("claim_within", ["0s", "999ms", "30d1us", "soon"])
def test_a_wait_out_of_range_is_refused(claim_within: str) -> None:
    found = problems_of(queue="billing", claim_within=claim_within)
    assert found.keys() == {"/target/claim_within"}


def test_a_target_is_either_a_url_or_a_queue() -> None:
    assert "remove one of them" in problems_of(url=URL, queue="billing")["/target/queue"]
    missing = problems_of()["/target"]
    assert "'url'" in missing
    assert "'queue'" in missing
    assert problems_of(method="PUT", batch=0).keys() == {"/target/url", "/target/batch"}
    with pytest.raises(WrongType):
        normalize_target(TargetDocument())


def test_fields_of_the_other_kind_are_refused() -> None:
    found = problems_of(queue="billing", method="PUT", headers={}, batch=2)
    assert found.keys() == {"/target/method", "/target/headers", "/target/batch"}
    assert problems_of(url=URL, claim_within="1h").keys() == {"/target/claim_within"}


def test_a_mask_has_no_stored_value_if_the_stored_target_is_a_queue() -> None:
    document = TargetDocument(url=URL, headers={"authorization": "***"})
    assert restore_masked(document, QueueTarget(queue="billing")) == document
    queue = TargetDocument(queue="billing", headers={"authorization": "***"})
    assert restore_masked(queue, STORED) == queue
