"""Detecting sensitive headers and masking their values."""

import pytest

from wheelsched.core.targets.sensitive import (
    MASK,
    is_sensitive,
    mask_headers,
    mask_user_info,
    mask_values,
    masked_names,
    restore_headers,
)


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "proxy-authorization",
        "COOKIE",
        "x-api-key",
        "X-ApiKey",
        "x-auth",
        "x-hub-signature-256",
        "x-vault-token",
        "client-secret",
        "x-password",
        "aws-credential",
        "x-functions-key",
        "x-session-id",
        "x-jwt-assertion",
    ],
)
def test_headers_that_carry_credentials_are_sensitive(name: str) -> None:
    assert is_sensitive(name)


@pytest.mark.parametrize("name", ["x-team", "accept", "user-agent", "x-request-id", "x-keyboard"])
def test_other_headers_are_not(name: str) -> None:
    assert not is_sensitive(name)


def test_only_values_of_sensitive_headers_are_masked() -> None:
    headers = {"Authorization": "Bearer s3cret", "x-team": "a"}
    assert mask_headers(headers) == {"Authorization": MASK, "x-team": "a"}


def test_a_mask_is_replaced_by_the_stored_value_whatever_its_case() -> None:
    written = {"authorization": MASK, "x-team": MASK, "x-token": "new", "cookie": MASK}
    stored = {"Authorization": "Bearer s3cret", "x-token": "old"}
    restored = restore_headers(written, stored)
    assert restored == written | {"authorization": "Bearer s3cret"}
    assert masked_names(restored) == ["cookie"]


def test_user_names_and_passwords_of_urls_are_masked() -> None:
    assert (
        mask_user_info("https://me:pass@example.org/?to=a@b") == "https://***@example.org/?to=a@b"
    )
    assert mask_user_info("me:pass@example.org/") == "***@example.org/"
    assert mask_user_info("https://example.org/me@here") == "https://example.org/me@here"


def test_values_that_a_worker_quotes_are_masked() -> None:
    headers = {"Authorization": "Bearer s3cret", "x-team": "blue", "x-pin": "12"}
    text = "401: 's3cret' of Bearer s3cret is unknown to team blue (12)"
    assert mask_values(text, headers) == "401: '***' of *** is unknown to team blue (12)"
