"""Who is answered without a token, and where callbacks may go."""

import pytest

from wheelsched.cli.serving import Auth, api_config, networks
from wheelsched.cli.written import read_address
from wheelsched.config import EgressConfig


@pytest.mark.parametrize(
    ("listen", "auth", "effective"),
    [
        ("127.0.0.1:8420", "loopback", "loopback"),
        ("[::1]:8420", "loopback", "loopback"),
        ("127.0.0.1:8420", "required", "required"),
        ("0.0.0.0:8420", "loopback", "required"),
        ("[::]:8420", "loopback", "required"),
        ("10.1.2.3:8420", "loopback", "required"),
    ],
)
def test_beyond_the_loopback_a_token_is_always_needed(
    listen: str, auth: Auth, effective: str
) -> None:
    assert api_config(read_address(listen), auth, EgressConfig()).auth == effective


def test_networks_are_repeated_or_separated_by_commas() -> None:
    assert networks(["10.0.0.0/8", "192.168.0.0/16,fd00::/8"]) == (
        *("10.0.0.0/8", "192.168.0.0/16", "fd00::/8"),
    )
    assert networks(None) == ()
