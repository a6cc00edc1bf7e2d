"""When a token is required, and where callbacks may go."""

import pytest
import typer
from msgspec.structs import replace
from typer.testing import CliRunner

from wheelsched import extras
from wheelsched.cli.app import app
from wheelsched.cli.commands.serving import Auth, api_config, link_config, networks, numbered
from wheelsched.cli.option_parsers import read_address
from wheelsched.config import EgressConfig, LinkConfig, ProbeConfig, StoreConfig
from wheelsched.daemon.shard import ShardDaemonConfig


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
def test_beyond_loopback_a_token_is_always_required(
    listen: str, auth: Auth, effective: str
) -> None:
    assert api_config(read_address(listen), auth, EgressConfig()).auth == effective


@pytest.mark.parametrize(
    ("listen", "grpc", "effective"),
    [
        ("127.0.0.1:8420", "[::1]:8421", "loopback"),
        ("127.0.0.1:8420", "0.0.0.0:8421", "required"),
        ("0.0.0.0:8420", "127.0.0.1:8421", "required"),
    ],
)
def test_a_token_is_required_if_one_address_is_beyond_loopback(
    listen: str, grpc: str, effective: str
) -> None:
    config = api_config(read_address(listen), "loopback", EgressConfig(), read_address(grpc))
    assert config.auth == effective
    assert config.grpc is not None
    assert config.grpc.address == grpc


def test_networks_are_repeated_or_separated_by_commas() -> None:
    assert networks(["10.0.0.0/8", "192.168.0.0/16,fd00::/8"]) == (
        *("10.0.0.0/8", "192.168.0.0/16", "fd00::/8"),
    )
    assert networks(None) == ()


@pytest.mark.parametrize(
    ("link", "address", "expected"),
    [
        ("10.0.0.5:8421", None, LinkConfig(host="10.0.0.5", port=8421)),
        (
            "0.0.0.0:8421",
            "shard-1:9000",
            LinkConfig(host="0.0.0.0", port=8421, address="shard-1:9000"),
        ),
        ("[::1]:1", "[fd00::1]:2", LinkConfig(host="::1", port=1, address="[fd00::1]:2")),
    ],
)
def test_a_link_listens_in_one_place_and_may_be_reached_at_another(
    link: str, address: str | None, expected: LinkConfig
) -> None:
    assert link_config(link, address) == expected


@pytest.mark.parametrize("link", ["0.0.0.0:8421", "[::]:8421"])
def test_a_link_on_all_addresses_needs_one_that_can_be_reached(link: str) -> None:
    with pytest.raises(typer.BadParameter, match="--link-address"):
        link_config(link, None)


def test_each_of_several_shards_has_its_own_ports() -> None:
    config = ShardDaemonConfig(
        store=StoreConfig(url="postgresql://", role="shard"),
        probe=ProbeConfig(port=9000),
        link=link_config("0.0.0.0:8421", "shard-1:7000"),
    )
    third = numbered(config, 2)
    assert third.probe == ProbeConfig(port=9002)
    assert third.link == link_config("0.0.0.0:8423", "shard-1:7002")
    kernels_choice = replace(config, probe=ProbeConfig(), link=LinkConfig())
    assert numbered(kernels_choice, 2) == kernels_choice


@pytest.mark.parametrize("command", ["api", "up"])
def test_grpc_without_its_extra_names_it(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is started."""
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "grpc" else name)
    extras.require.cache_clear()
    options = ["--database-url", "postgresql://127.0.0.1:1/none"] if command == "api" else []
    done = CliRunner().invoke(app, [command, "--grpc", "127.0.0.1:0", *options])
    extras.require.cache_clear()
    assert done.exit_code == 1
    assert "grpc is not installed" in done.output
    assert "pip install 'wheelsched[grpc]'" in done.output.replace("\n", " ")
