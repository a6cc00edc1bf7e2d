from base64 import b64encode
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from wheelsched.delivery.http.signing import sign, sign_both

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


@given(st.lists(SECRETS, max_size=3), st.text("!#-~"), st.binary(), st.binary())
def test_two_are_signed_as_each_alone(
    secrets: list[str], key: str, body: bytes, values: bytes
) -> None:
    alone = sign(secrets, key, NOW_S, body), sign(secrets, key, NOW_S, values)
    assert sign_both(secrets, key, NOW_S, body, values) == alone
