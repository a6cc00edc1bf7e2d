import pytest
from tests.unit.worker.callbacks import (
    NOW_S,
    OTHER_SECRET,
    SECRET,
    SIGNED,
    signed,
    signed_values,
    single,
)

from wheelsched.errors import (
    InvalidSecret,
    SignatureExpired,
    SignatureMismatch,
    SignatureMissing,
)
from wheelsched.worker.signature import Verifier

BODY = '{"say": "grüße"}'.encode()
TOLERANCE_S = 300


def verifier(*secrets: str) -> Verifier:
    return Verifier(
        secrets or (SECRET,),
        tolerance_us=TOLERANCE_S * 1_000_000,
        wall_us=lambda: NOW_S * 1_000_000,
    )


def test_a_signature_of_another_implementation_is_valid() -> None:
    assert verifier().verify(signed("key", BODY), BODY) == "key"


def test_one_secret_in_common_is_enough() -> None:
    both = signed("key", BODY, secrets=(OTHER_SECRET, SECRET))
    assert verifier(SECRET).verify(both, BODY) == "key"
    assert verifier(OTHER_SECRET).verify(both, BODY) == "key"
    assert verifier(OTHER_SECRET, SECRET).verify(signed("key", BODY), BODY) == "key"


def test_a_signature_by_another_secret_is_refused() -> None:
    with pytest.raises(SignatureMismatch):
        verifier().verify(signed("key", BODY, secrets=(OTHER_SECRET,)), BODY)


@pytest.mark.parametrize(
    "forged",
    [
        {"webhook-id": "another"},
        {"webhook-timestamp": str(NOW_S + 1)},
        {"webhook-signature": "v1,AAAA"},
        {"webhook-signature": "v1"},
        {"webhook-signature": "nonsense ünd mehr"},
    ],
)
def test_a_forged_header_is_refused(forged: dict[str, str]) -> None:
    with pytest.raises(SignatureMismatch):
        verifier().verify(signed("key", BODY) | forged, BODY)


def test_a_forged_body_is_refused() -> None:
    with pytest.raises(SignatureMismatch):
        verifier().verify(signed("key", BODY), BODY + b" ")


def test_a_signature_of_another_version_is_not_taken_for_ours() -> None:
    headers = signed("key", BODY)
    headers["webhook-signature"] = headers["webhook-signature"].replace("v1,", "v1a,")
    with pytest.raises(SignatureMismatch):
        verifier().verify(headers, BODY)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
@pytest.mark.parametrize("without", [True, False])
def test_a_request_that_is_not_signed_is_refused(name: str, without: bool) -> None:
    headers = signed("key", BODY)
    if without:
        del headers[name]
    else:
        headers[name] = ""
    with pytest.raises(SignatureMissing):
        verifier().verify(headers, BODY)


@pytest.mark.parametrize("name", SIGNED)
@pytest.mark.parametrize("forged", ["another", "", "7\n", "ü"])
def test_the_run_headers_are_signed(name: str, forged: str) -> None:
    headers, body = single(headers={"wheelsched-timeout-ms": "30000"})
    assert verifier().verify(headers, body)
    with pytest.raises(SignatureMismatch, match="wheelsched-signature"):
        verifier().verify(headers | {f"wheelsched-{name}": forged}, body)


def test_the_signature_of_the_values_is_that_of_this_request() -> None:
    headers, body = single()
    for other in (
        signed_values("another", headers),
        signed_values(headers["webhook-id"], headers, at_s=NOW_S - 1),
        signed_values(headers["webhook-id"], headers, secret=OTHER_SECRET),
        {"wheelsched-signature": headers["webhook-signature"]},
    ):
        with pytest.raises(SignatureMismatch):
            verifier().verify(headers | other, body)


def test_a_request_of_one_run_has_both_signatures() -> None:
    headers, body = single()
    del headers["wheelsched-signature"]
    with pytest.raises(SignatureMissing, match="wheelsched-signature"):
        verifier().verify(headers, body)


@pytest.mark.parametrize("timestamp", ["now", "-1", "1e9", "٣", "9" * 5_000])
def test_a_timestamp_is_a_number(timestamp: str) -> None:
    with pytest.raises(SignatureMissing):
        verifier().verify(signed("key", BODY) | {"webhook-timestamp": timestamp}, BODY)


@pytest.mark.parametrize("age_s", [-TOLERANCE_S, TOLERANCE_S])
def test_clocks_may_differ_as_much_as_is_tolerated(age_s: int) -> None:
    assert verifier().verify(signed("key", BODY, at_s=NOW_S - age_s), BODY) == "key"


@pytest.mark.parametrize("age_s", [-TOLERANCE_S - 1, TOLERANCE_S + 1])
def test_an_old_or_future_timestamp_is_refused(age_s: int) -> None:
    with pytest.raises(SignatureExpired):
        verifier().verify(signed("key", BODY, at_s=NOW_S - age_s), BODY)


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "whsec_dG9vIHNob3J0",
        SECRET.removeprefix("whsec_"),
        "whsec_ü",
        "whsec_" + "A" * 99,
    ],
)
def test_a_bad_secret_is_refused_at_once(secret: str) -> None:
    with pytest.raises(InvalidSecret):
        verifier(secret)


def test_a_worker_without_secrets_is_refused() -> None:
    with pytest.raises(InvalidSecret, match="at least one"):
        Verifier([], tolerance_us=1, wall_us=lambda: 0)


def test_a_secret_without_padding_is_the_same_secret() -> None:
    assert SECRET.endswith("=")
    assert verifier(SECRET.rstrip("=")).verify(signed("key", BODY), BODY) == "key"
