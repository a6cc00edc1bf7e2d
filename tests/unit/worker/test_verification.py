import time

import pytest
from tests.unit.worker.callbacks import (
    OTHER_SECRET,
    SECRET,
    batch,
    element,
    run_id,
    signed,
    single,
)

from wheelsched.errors import SignatureExpired, SignatureMismatch, SignatureMissing
from wheelsched.wire.callback import batch_key
from wheelsched.worker import InvalidCallback, UnverifiedCallback, verify, verify_batch


def now_s() -> int:
    return int(time.time())


def test_a_genuine_callback_is_its_run_whatever_case_the_headers_have() -> None:
    headers, body = single(b'{"a": 1}', job_name="Bericht für März", at_s=now_s())
    run = verify({name.title(): value for name, value in headers.items()}, body, SECRET)
    assert (run.run_id, run.job_name, run.attempt) == (run_id(), "Bericht für März", 1)
    assert bytes(run.payload) == body
    assert verify(headers, body, [OTHER_SECRET, SECRET]) == run


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"webhook-signature": ""}, SignatureMissing),
        ({"wheelsched-job-name": "another"}, SignatureMismatch),
        ({"wheelsched-attempt": "2"}, SignatureMismatch),
    ],
)
def test_a_forged_callback_is_refused(changed: dict[str, str], error: type[Exception]) -> None:
    headers, body = single(at_s=now_s())
    with pytest.raises(error) as refused:
        verify(headers | changed, body, SECRET)
    assert isinstance(refused.value, UnverifiedCallback)


def test_a_changed_body_and_a_foreign_secret_are_refused() -> None:
    headers, body = single(at_s=now_s())
    with pytest.raises(SignatureMismatch):
        verify(headers, body + b" ", SECRET)
    with pytest.raises(SignatureMismatch):
        verify(headers, body, OTHER_SECRET)


def test_an_old_callback_is_refused_by_the_tolerance() -> None:
    headers, body = single(at_s=now_s() - 1_000)
    with pytest.raises(SignatureExpired):
        verify(headers, body, SECRET)
    assert verify(headers, body, SECRET, tolerance_s=100_000).run_id == run_id()


def test_a_batch_is_its_runs() -> None:
    _, body = batch(element(0), element(1))
    headers = signed(batch_key([run_id(0), run_id(1)]), body, at_s=now_s())
    assert [run.run_id for run in verify_batch(headers, body, SECRET)] == [run_id(0), run_id(1)]
    with pytest.raises(InvalidCallback, match="verify_batch"):
        verify(headers, body, SECRET)
    headers, body = single(at_s=now_s())
    assert [run.run_id for run in verify_batch(headers, body, SECRET)] == [run_id()]


def test_text_is_not_a_body() -> None:
    with pytest.raises(TypeError, match="bytes"):
        verify({}, "{}", SECRET)  # type: ignore[arg-type]  # the mistake of the test
