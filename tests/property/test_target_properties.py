"""However a URL is written, what was judged is what is connected to."""

from ipaddress import IPv4Address, ip_address

from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from wheelsched.core.targets.egress import explain_forbidden
from wheelsched.core.targets.target import Endpoint, check_url
from wheelsched.errors import InvalidField

SEPARATORS = ["://", ":", "/", "//", "@", "?", "#", "\\", "[", "]", "%", "%2e", ".", "。", "_", "-"]
HOSTS = ["example.org", "localhost", "127.0.0.1", "0x7f.1", "2130706433", "::1", "::ffff:7f00:1"]
ODD = ["80", "22", "８０", "ß", "ü", "xn--", "\t", "\r\n", "\u200b", "\x00", "a" * 64]
PIECES = st.sampled_from([*SEPARATORS, *HOSTS, *ODD])
SPELLINGS = st.one_of(
    st.lists(PIECES, max_size=8).map("".join),
    st.lists(PIECES, max_size=6).map(lambda pieces: "http://" + "".join(pieces)),
    st.text(max_size=30).map(lambda host: f"https://{host}/"),
    st.from_regex(r"\Ahttps?://[a-zßü0-9._-]{1,20}(:[0-9]{0,5})?[/?#a%.ü]{0,10}\Z"),
)


def read(written: str) -> Endpoint | None:
    try:
        return check_url(written)
    except InvalidField:
        return None


@given(SPELLINGS)
def test_what_connects_reads_the_same_host_and_port(written: str) -> None:
    endpoint = read(written)
    if endpoint is None:
        return
    url = URL(endpoint.url)
    assert (url.scheme, url.host_subcomponent, url.port) == (
        endpoint.scheme,
        endpoint.host,
        endpoint.port,
    )
    assert url.user is None
    assert url.password is None
    assert check_url(endpoint.url) == endpoint


@given(SPELLINGS)
def test_no_address_of_the_inside_is_accepted(written: str) -> None:
    endpoint = read(written)
    if endpoint is not None:
        try:
            address = ip_address(endpoint.host.strip("[]"))
        except ValueError:
            assert endpoint.host.rstrip(".").rpartition(".")[2] != "localhost"
        else:
            assert explain_forbidden(address) is None


@given(st.ip_addresses(v=4), st.sampled_from(["{}", "0x{:x}", "0{:o}", "{:o}.1", "0x{:X}."]))
def test_an_address_in_another_spelling_is_not_a_valid_host(
    address: IPv4Address, spelling: str
) -> None:
    assert read(f"http://{spelling.format(int(address))}/") is None
