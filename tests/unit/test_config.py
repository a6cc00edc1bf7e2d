import msgspec
import pytest

from wheelsched.config import DispatchConfig, EgressConfig, FairnessConfig, LinkConfig
from wheelsched.errors import InvalidNetwork


def test_networks_are_validated_when_the_config_is_built() -> None:
    assert len(EgressConfig(allow=("10.0.0.0/8", "fd00::/8")).rules.allow) == 2
    with pytest.raises(InvalidNetwork):
        EgressConfig(allow=("10.0.0.1/8",))
    with pytest.raises((InvalidNetwork, msgspec.ValidationError)):
        msgspec.convert({"allow": ["inside"]}, EgressConfig)


def test_there_is_a_connection_for_every_request_in_flight() -> None:
    """So that no request waits in the connection pool, which ignores tenant weights."""
    dispatch, fairness = DispatchConfig(), FairnessConfig()
    assert dispatch.connections_per_host >= fairness.in_flight_per_origin
    assert dispatch.connections >= fairness.in_flight
    assert fairness.in_flight >= 2 * fairness.in_flight_per_tenant
    assert fairness.in_flight_per_tenant >= 2 * fairness.in_flight_per_origin


@pytest.mark.parametrize(
    ("host", "address", "is_reachable"),
    [
        ("10.0.0.5", None, True),
        ("shard-1.internal", None, True),
        ("0.0.0.0", None, False),
        ("::", None, False),
        ("0.0.0.0", "shard-1.internal:8421", True),
    ],
)
def test_a_link_on_a_wildcard_needs_an_address(
    host: str, address: str | None, is_reachable: bool
) -> None:
    assert LinkConfig(host=host, address=address).is_reachable is is_reachable
