"""A worker knows by whose secret it is called, and that it is by one alone."""

from collections.abc import Sequence

import pytest
from tests.faults.worker import NOBODY, SIGNED, Signatures

from wheelsched.api.resources.tenants import new_secret
from wheelsched.delivery.http.signing import sign_both

SECRETS = {tenant: new_secret() for tenant in ("one", "another", "unknown")}
KNOWN = Signatures(f"{tenant}={SECRETS[tenant]}" for tenant in ("one", "another"))
BODY = b'{"mark":1}'


def headers(*, body_by: Sequence[str], values_by: Sequence[str]) -> dict[str, str]:
    """Those of a callback whose body and whose headers are signed by some tenants each."""
    named = {name: f"a {name}" for name in SIGNED}
    values = "\n".join(named.values()).encode()
    of_body, _ = sign_both([SECRETS[tenant] for tenant in body_by], "id", 17, BODY, values)
    _, of_values = sign_both([SECRETS[tenant] for tenant in values_by], "id", 17, BODY, values)
    signatures = {"webhook-signature": of_body, "wheelsched-signature": of_values}
    return {"webhook-id": "id", "webhook-timestamp": "17"} | named | signatures


@pytest.mark.parametrize("tenant", ["one", "another"])
def test_it_knows_the_tenants_apart(tenant: str) -> None:
    assert KNOWN.signer(headers(body_by=[tenant], values_by=[tenant]), BODY) == tenant


def test_one_of_the_secrets_of_a_rotation_is_enough() -> None:
    both = ["unknown", "one"]
    assert KNOWN.signer(headers(body_by=both, values_by=both), BODY) == "one"


@pytest.mark.parametrize(
    ("body_by", "values_by"), [("unknown", "unknown"), ("one", "another"), ("another", "one")]
)
def test_what_no_tenant_has_signed_all_of_is_nobodys(body_by: str, values_by: str) -> None:
    signed = headers(body_by=[body_by], values_by=[values_by])
    assert KNOWN.signer(signed, BODY) == NOBODY


def test_another_body_has_no_valid_signature() -> None:
    signed = headers(body_by=["one"], values_by=["one"])
    assert KNOWN.signer(signed, b'{"mark":2}') == NOBODY


def test_a_batch_is_signed_by_its_body_alone() -> None:
    array = b"[]"
    of_body, _ = sign_both([SECRETS["another"]], "id", 17, array, b"")
    named = {"webhook-id": "id", "webhook-timestamp": "17", "webhook-signature": of_body}
    assert KNOWN.signer(named, array) == "another"
