from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelsched.errors import InvalidSecret
from wheelsched.wire.secret import read_secret, write_secret

KEYS = st.binary(min_size=24, max_size=64)


@given(KEYS)
def test_a_secret_is_read_with_and_without_padding(key: bytes) -> None:
    secret = write_secret(key)
    assert secret.startswith("whsec_")
    assert read_secret(secret) == read_secret(secret.rstrip("=")) == key


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "whsec_c2hvcnQ=",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_" + "*" * 32,
        "whsec_" + "é" * 32,
        "whsec_" + b64encode(b"k" * 65).decode(),
    ],
)
def test_an_invalid_secret_is_rejected(secret: str) -> None:
    with pytest.raises(InvalidSecret):
        read_secret(secret)
