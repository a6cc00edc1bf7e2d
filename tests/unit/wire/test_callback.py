from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelsched.core.model import Trigger
from wheelsched.schedule.spec import END_US
from wheelsched.wire.callback import (
    BatchAnswer,
    BatchElement,
    batch_key,
    decode_elements,
    encode_answers,
    encode_element,
    read_answers,
    read_instant,
    read_name,
    write_instant,
    write_name,
)

JOB_ID = UUID("018f3c2e-7a9b-7c3d-8e4f-5a6b7c8d9e0f")
ELEMENT = BatchElement(
    run_id=f"{JOB_ID.hex}-1794837600000000",
    job_id=JOB_ID,
    job_name="weekly-report",
    scheduled_at="2026-11-16T14:00:00Z",
    attempt=1,
    fencing_token=(7 << 32) + 42,
    idempotency_key=f"{JOB_ID}:1794837600",
    trigger=Trigger.SCHEDULE,
    timeout_ms=120_000,
    payload=msgspec.Raw(b'{"report" : "weekly"}'),
)


def test_an_element_has_the_fields_of_the_contract_in_their_order() -> None:
    assert encode_element(ELEMENT) == (
        b'{"run_id":"018f3c2e7a9b7c3d8e4f5a6b7c8d9e0f-1794837600000000",'
        b'"job_id":"018f3c2e-7a9b-7c3d-8e4f-5a6b7c8d9e0f","job_name":"weekly-report",'
        b'"scheduled_at":"2026-11-16T14:00:00Z","attempt":1,"fencing_token":30064771114,'
        b'"idempotency_key":"018f3c2e-7a9b-7c3d-8e4f-5a6b7c8d9e0f:1794837600",'
        b'"trigger":"schedule","timeout_ms":120000,"payload":{"report" : "weekly"}}'
    )


def test_a_worker_decodes_what_the_dispatcher_encodes() -> None:
    assert decode_elements(b"[" + encode_element(ELEMENT) + b"]") == [ELEMENT]


def test_the_dispatcher_decodes_what_a_worker_encodes() -> None:
    answers = [
        BatchAnswer(run_id="a", ok=True),
        BatchAnswer(run_id="b", ok=False, error="no paper", retry=False),
    ]
    written = encode_answers(answers)
    assert written == (
        b'[{"run_id":"a","ok":true},{"run_id":"b","ok":false,"error":"no paper","retry":false}]'
    )
    assert read_answers(written) == {answer.run_id: answer for answer in answers}


def test_a_result_may_have_unknown_and_null_fields() -> None:
    assert read_answers(b'[{"run_id":"a","ok":true,"error":null,"retry":null,"took":3}]') == {
        "a": BatchAnswer(run_id="a", ok=True)
    }


def test_malformed_results_are_ignored() -> None:
    body = b'[1, null, {"ok":true}, {"run_id":"b","ok":"yes"}, {"run_id":"a","ok":true}]'
    assert read_answers(body) == {"a": BatchAnswer(run_id="a", ok=True)}


@pytest.mark.parametrize("oks", [("true", "false"), ("false", "true")])
def test_a_failure_wins_if_a_run_is_named_twice(oks: tuple[str, str]) -> None:
    body = ",".join(f'{{"run_id":"a","ok":{ok}}}' for ok in oks)
    assert read_answers(f"[{body}]".encode()) == {"a": BatchAnswer(run_id="a", ok=False)}


@pytest.mark.parametrize(
    "body", [b"", b"ok", b"{}", b"null", b"[", b'[{"run_id":"a"', b"\xff", b"[]x"]
)
def test_a_body_that_is_not_an_array_has_no_results(body: bytes) -> None:
    assert read_answers(body) is None


def test_the_batch_key_does_not_depend_on_the_order() -> None:
    assert batch_key(["a", "b"]) == batch_key(["b", "a"])
    assert batch_key(["a", "b"]) != batch_key(["a"])
    assert batch_key(["ab", "c"]) != batch_key(["a", "bc"])
    assert "." not in batch_key(["a", "b"])


@pytest.mark.parametrize(
    ("instant_us", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_794_837_600_000_000, "2026-11-16T14:00:00Z"),
        (1_794_837_600_250_000, "2026-11-16T14:00:00.250000Z"),
        (1_794_837_600_000_001, "2026-11-16T14:00:00.000001Z"),
    ],
)
def test_instants_are_iso_8601_in_utc(instant_us: int, text: str) -> None:
    assert write_instant(instant_us) == text


@given(st.integers(0, END_US - 1))
def test_instants_are_read_back(instant_us: int) -> None:
    assert read_instant(write_instant(instant_us)) == instant_us


def test_a_plain_name_is_not_encoded() -> None:
    assert write_name("weekly-report_1/a:b") == "weekly-report_1/a:b"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_name_survives_a_header(name: str) -> None:
    written = write_name(name)
    assert all("!" <= character <= "~" for character in written)
    assert read_name(written) == name


def test_a_body_that_is_not_utf8_has_no_results() -> None:
    answers = read_answers(b'[{"run_id": "a", "ok": true}, {"run_id": "b\xd7", "ok": true}]')
    assert answers is not None
    assert answers.keys() == {"a"}
