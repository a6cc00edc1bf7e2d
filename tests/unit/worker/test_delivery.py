from datetime import UTC, datetime

import msgspec
import pytest
from tests.unit.worker.callbacks import JOB_ID, Request, batch, element, run_id, single

from wheelsched.core.model import Trigger
from wheelsched.errors import InvalidCallback, TransactionMissing
from wheelsched.worker.delivery import Delivery, Run, read_request


def read(request: Request) -> Delivery | list[Delivery]:
    headers, body = request
    return read_request(headers, body, headers["webhook-id"])


def test_a_request_of_one_run() -> None:
    delivery = read(single(b'{ "as": "written" }', headers={"wheelsched-timeout-ms": "30000"}))
    assert isinstance(delivery, Delivery)
    assert bytes(delivery.payload) == b'{ "as": "written" }'
    assert delivery.run_id == run_id()
    assert delivery.job_id == JOB_ID
    assert delivery.scheduled_at == datetime(2026, 11, 16, 14, 0, tzinfo=UTC)
    assert (delivery.attempt, delivery.token) == (1, 4294967297)
    assert delivery.trigger is Trigger.SCHEDULE
    assert delivery.timeout_us == 30_000_000
    assert delivery.traceparent is not None
    assert not delivery.is_batched


def test_a_name_of_any_characters_arrives() -> None:
    delivery = read(single(job_name="Wöchentlich 100% \N{GRINNING FACE}"))
    assert isinstance(delivery, Delivery)
    assert delivery.job_name == "Wöchentlich 100% \N{GRINNING FACE}"


def test_the_key_is_the_one_that_was_signed() -> None:
    delivery = read(single(headers={"idempotency-key": "forged"}))
    assert isinstance(delivery, Delivery)
    assert delivery.idempotency_key == f"{JOB_ID}:0"


def test_a_request_of_several_runs() -> None:
    deliveries = read(batch(element(1, b'{"a": 1}', timeout_ms=30_000), element(2)))
    assert isinstance(deliveries, list)
    assert [each.run_id for each in deliveries] == [run_id(1), run_id(2)]
    assert bytes(deliveries[0].payload) == b'{"a": 1}'
    assert [each.timeout_us for each in deliveries] == [30_000_000, None]
    assert all(each.is_batched for each in deliveries)


def test_a_single_request_cannot_be_turned_into_a_batch() -> None:
    """Only unsigned headers distinguish them."""
    headers, body = single(msgspec.json.encode([element(1)]))
    del headers["wheelsched-run-id"]
    with pytest.raises(InvalidCallback, match="webhook-id"):
        read((headers, body))


@pytest.mark.parametrize(
    "name", ["job-id", "job-name", "scheduled-at", "attempt", "fencing-token", "trigger"]
)
def test_a_header_that_is_missing_is_named(name: str) -> None:
    headers, body = single()
    del headers[f"wheelsched-{name}"]
    with pytest.raises(InvalidCallback, match=name):
        read((headers, body))


@pytest.mark.parametrize("name", ["job-id", "scheduled-at", "attempt", "fencing-token", "trigger"])
@pytest.mark.parametrize("written", ["", "ü;=", "-" + "1" * 5_000])
def test_a_header_that_is_bad_is_refused(name: str, written: str) -> None:
    with pytest.raises(InvalidCallback):
        read(single(headers={f"wheelsched-{name}": written}))


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'[{"run_id": "x"}]', b"\xff", b"[" * 9_999])
def test_an_invalid_batch_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidCallback):
        read_request({"webhook-id": "batch_x"}, body, "batch_x")


def test_a_batch_nested_beyond_all_measure_is_refused() -> None:
    headers, body = batch(element(1, b"1"))
    deep = body.replace(b'"payload":1', b'"payload":' + b"[" * 100_000 + b"]" * 100_000)
    assert len(deep) > 200_000
    with pytest.raises(InvalidCallback):
        read((headers, deep))


def test_a_run_without_a_transaction_says_how_to_get_one() -> None:
    run = Run(**msgspec.structs.asdict(read(single())))  # type: ignore[arg-type]
    with pytest.raises(TransactionMissing, match="PostgresOnce"):
        _ = run.connection
