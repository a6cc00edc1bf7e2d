from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelsched.core.targets.egress import LOOPBACK, NO_EXCEPTIONS, explain_forbidden, read_rules
from wheelsched.errors import InvalidNetwork

EVERYTHING = read_rules(["0.0.0.0/0", "::/0"])


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "100.63.255.255", "172.32.0.1", "2606:4700::1111"]
)
def test_public_addresses_are_allowed(address: str) -> None:
    assert explain_forbidden(ip_address(address)) is None


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("0.0.0.0", "an unspecified address"),
        ("0.1.2.3", "an unspecified address"),
        ("::", "an unspecified address"),
        ("127.0.0.1", "a loopback address"),
        ("127.255.255.254", "a loopback address"),
        ("::1", "a loopback address"),
        ("10.0.0.1", "a private address"),
        ("172.16.0.1", "a private address"),
        ("172.31.255.255", "a private address"),
        ("192.168.1.1", "a private address"),
        ("fc00::1", "a private address"),
        ("fd12:3456::1", "a private address"),
        ("fec0::1", "a private address"),
        ("169.254.1.1", "a link-local address"),
        ("fe80::1", "a link-local address"),
        ("fe80::1%eth0", "a link-local address"),
        ("fe80::a9fe:a9fe%eth0", "a metadata address"),
        ("fd00:ec2::254%eth0", "a metadata address"),
        ("::ffff:127.0.0.1%eth0", "a loopback address"),
        ("2606:4700::5efe:a00:1", "a private address"),
        ("::ffff:0:7f00:1", "a reserved address"),
        ("169.254.0.23", "a metadata address"),
        ("192.0.0.192", "a metadata address"),
        ("fd20:ce::254", "a metadata address"),
        ("169.254.169.254", "a metadata address"),
        ("169.254.170.2", "a metadata address"),
        ("fd00:ec2::254", "a metadata address"),
        ("100.100.100.200", "a metadata address"),
        ("168.63.129.16", "a metadata address"),
        ("224.0.0.1", "a multicast address"),
        ("ff02::1", "a multicast address"),
        ("255.255.255.255", "a broadcast address"),
        ("100.64.0.1", "a carrier-grade NAT address"),
        ("::ffff:127.0.0.1", "a loopback address"),
        ("::ffff:a9fe:a9fe", "a metadata address"),
        ("::7f00:1", "an IPv4-compatible address"),
        ("64:ff9b::7f00:1", "a NAT64 address"),
        ("64:ff9b:1::a00:1", "a NAT64 address"),
        ("2002:7f00:1::", "a 6to4 address"),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "a Teredo address"),
        ("192.0.2.1", "a documentation address"),
        ("198.51.100.1", "a documentation address"),
        ("203.0.113.1", "a documentation address"),
        ("2001:db8::1", "a documentation address"),
        ("3fff::1", "a documentation address"),
        ("198.18.0.1", "a benchmarking address"),
        ("192.0.0.8", "a reserved address"),
        ("240.0.0.1", "a reserved address"),
        ("2001:10::1", "a reserved address"),
        ("4000::1", "a reserved address"),
        ("100::1", "a reserved address"),
    ],
)
def test_an_internal_or_reserved_address_is_forbidden(address: str, what: str) -> None:
    assert explain_forbidden(ip_address(address)) == what


def test_an_allowed_network_is_open_and_its_neighbours_are_not() -> None:
    rules = read_rules(["10.20.0.0/16", "fd12::/16"])
    assert explain_forbidden(ip_address("10.20.3.4"), rules) is None
    assert explain_forbidden(ip_address("::ffff:10.20.3.4"), rules) is None
    assert explain_forbidden(ip_address("fd12::7"), rules) is None
    assert explain_forbidden(ip_address("10.21.0.1"), rules) == "a private address"


def test_loopback_is_open_when_it_is_allowed() -> None:
    assert not NO_EXCEPTIONS.allows_loopback
    rules = read_rules(LOOPBACK)
    assert rules.allows_loopback
    assert explain_forbidden(ip_address("127.0.0.1"), rules) is None
    assert explain_forbidden(ip_address("::1"), rules) is None
    assert read_rules(["127.0.0.1/32"]).allows_loopback


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "100.100.100.200",
        "168.63.129.16",
        "fd00:ec2::254",
        "fe80::a9fe:a9fe",
        "::",
        "ff02::1",
        "224.0.0.1",
        "255.255.255.255",
        "0.0.0.0",
    ],
)
def test_metadata_and_multicast_addresses_are_always_forbidden(
    address: str,
) -> None:
    assert explain_forbidden(ip_address(address), EVERYTHING) is not None


@pytest.mark.parametrize(
    "wrapping",
    [
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a9fe:a9fe",
        "2002:a9fe:a9fe::",
        "::a9fe:a9fe",
        "::ffff:0:a9fe:a9fe",
        "2001:0:101:101:0:0:5601:5601",  # Teredo, who is behind it
        "2001:0:a9fe:a9fe:0:0:fefe:fefe",  # and its server
        "2606:4700::5efe:a9fe:a9fe",
        "2606:4700::200:5efe:a9fe:a9fe",
    ],
)
def test_a_gateway_that_is_allowed_leads_to_nothing_forbidden(wrapping: str) -> None:
    assert explain_forbidden(ip_address(wrapping), EVERYTHING) == "a metadata address"
    rules = read_rules(["64:ff9b::/96"])
    assert explain_forbidden(ip_address("64:ff9b::101:101"), rules) is None
    assert explain_forbidden(ip_address("64:ff9b::a00:1"), rules) == "a private address"


def test_an_invalid_network_is_refused_when_the_rules_are_read() -> None:
    for written in ["10.0.0.1/8", "example.org", "10.0.0.0/33", ""]:
        with pytest.raises(InvalidNetwork):
            read_rules([written])


@given(st.ip_addresses(v=4))
def test_every_allowed_address_is_global_to_the_standard_library(address: IPv4Address) -> None:
    if explain_forbidden(address) is None:
        assert address.is_global
        assert not address.is_multicast


@given(st.ip_addresses(v=6))
def test_of_ipv6_as_well(address: IPv6Address) -> None:
    if explain_forbidden(address) is None:
        assert address.is_global or address.ipv4_mapped is not None


@given(st.ip_addresses(v=4))
def test_a_mapped_address_is_checked_as_its_ipv4_address(address: IPv4Address) -> None:
    mapped = IPv6Address(f"::ffff:{address}")
    assert explain_forbidden(mapped) == explain_forbidden(address)
