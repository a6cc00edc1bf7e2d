from base64 import b64encode
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from wheelsched.dispatch.signing import read_secret, sign
from wheelsched.errors import InvalidSecret

SECRETS = st.binary(min_size=24, max_size=64).map(lambda key: "whsec_" + b64encode(key).decode())
NOW_S = 1_794_837_600


@given(SECRETS, st.text("!#-~"), st.text())
def test_a_signature_is_that_of_standard_webhooks(secret: str, key: str, body: str) -> None:
    reference = Webhook(secret).sign(key, datetime.fromtimestamp(NOW_S, UTC), body)
    assert sign([secret], key, NOW_S, body.encode()) == reference


@given(st.lists(SECRETS, max_size=3))
def test_each_secret_signs_in_its_order(secrets: list[str]) -> None:
    signatures = [sign([secret], "a", NOW_S, b"{}") for secret in secrets]
    assert sign(secrets, "a", NOW_S, b"{}") == " ".join(signatures)


def test_a_secret_may_lack_its_padding() -> None:
    padded = "whsec_" + b64encode(b"k" * 25).decode()
    assert padded.endswith("=")
    assert read_secret(padded.rstrip("=")) == b"k" * 25


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "whsec_c2hvcnQ=",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_" + "*" * 32,
        "whsec_" + b64encode(b"k" * 65).decode(),
    ],
)
def test_what_is_no_secret_is_refused(secret: str) -> None:
    with pytest.raises(InvalidSecret):
        sign([secret], "a", NOW_S, b"{}")
