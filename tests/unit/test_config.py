import msgspec
import pytest

from wheelsched.config import EgressConfig
from wheelsched.errors import InvalidNetwork


def test_networks_are_read_when_the_settings_are_built() -> None:
    assert len(EgressConfig(allow=("10.0.0.0/8", "fd00::/8")).rules.allow) == 2
    with pytest.raises(InvalidNetwork):
        EgressConfig(allow=("10.0.0.1/8",))
    with pytest.raises((InvalidNetwork, msgspec.ValidationError)):
        msgspec.convert({"allow": ["inside"]}, EgressConfig)
