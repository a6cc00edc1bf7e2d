import pytest
from msgspec.structs import replace
from yarl import URL

from wheelsched.core.targets.egress import LOOPBACK, OwnListener, read_listener, read_rules
from wheelsched.core.targets.target import (
    MAX_HEADERS,
    METHODS,
    check_headers,
    check_method,
    check_url,
)
from wheelsched.errors import (
    InvalidField,
    InvalidHeader,
    InvalidUrl,
    TargetForbidden,
    UnknownChoice,
)

OPEN_LOOPBACK = read_rules(LOOPBACK)


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("https://example.org/hooks/report", "https://example.org:443/hooks/report"),
        ("http://example.org", "http://example.org:80/"),
        ("HTTPS://Example.ORG:8443?a=b#part", "https://example.org:8443/?a=b"),
        ("https://example.org:/x", "https://example.org:443/x"),
        ("https://bücher.example/ä", "https://xn--bcher-kva.example:443/ä"),
        ("https://my_worker.example./x", "https://my_worker.example.:443/x"),
        ("http://93.184.216.34/x", "http://93.184.216.34:80/x"),
        ("http://９３.184.216.34/x", "http://93.184.216.34:80/x"),
        ("https://[2606:4700:0:0::1111]/", "https://[2606:4700::1111]:443/"),
    ],
)
def test_a_url_is_read_and_spelled_out(written: str, url: str) -> None:
    endpoint = check_url(written)
    assert endpoint.url == url
    assert endpoint.url.startswith(endpoint.origin)
    # What connects reads the same out of it.
    read = URL(endpoint.url)
    assert (read.scheme, read.port) == (endpoint.scheme, endpoint.port)
    assert read.host_subcomponent == endpoint.host


@pytest.mark.parametrize(
    "written",
    [
        None,
        7,
        "",
        "example.org/x",
        "//example.org/x",
        "/x",
        "file:///etc/passwd",
        "ftp://example.org/",
        "gopher://example.org/",
        "javascript:alert(1)",
        "https://",
        "https:///x",
        "https://user@example.org/",
        "https://user:secret@example.org/",
        "https://example.org@127.0.0.1/",
        "https://exa mple.org/",
        "https://example.org/\r\nX: y",
        "https://example.org/a b",
        "https://example.org\\@127.0.0.1/",
        "https://example.org/\x00",
        "https://example.org/\ud800",
        "https://example.org:0/",
        "https://example.org:65536/",
        "https://example.org:８０/",
        "https://example.org:80:80/",
        "https://[::1/",
        "https://[fe80::1%25eth0]/",
        "https://[fe80::1%eth0]/",
        "https://[example.org]/",
        "https://exa%6dple.org/",
        "https://-example.org/",
        "https://example..org/",
        "https://" + "a" * 64 + ".org/",
        "https://example.org/" + "a" * 2_048,
        # An address in another spelling than the usual one.
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://127.0.0.1./",
        "http://1.1.1.256/",
        "http://example.0x1/",
    ],
)
def test_an_invalid_url_is_refused_as_such(written: object) -> None:
    with pytest.raises(InvalidUrl) as caught:
        check_url(written, OPEN_LOOPBACK)
    assert caught.value.pointer == "/target/url"
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "written",
    [
        "http://127.0.0.1/",
        "http://127.0.0.1:8080/",
        "http://１２７.0.0.1/",
        "http://127。0。0。1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://worker.localhost:8080/",
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/",
        "http://[64:ff9b::7f00:1]/",
        "http://0.0.0.0/",
        "https://example.org:22/",
        "https://example.org:5432/",
        "https://example.org:6379/",
    ],
)
def test_a_url_to_an_internal_address_is_forbidden(written: str) -> None:
    with pytest.raises(TargetForbidden) as caught:
        check_url(written)
    assert caught.value.pointer == "/target/url"


def test_the_error_says_what_is_expected() -> None:
    with pytest.raises(InvalidField, match=r"leading zeros, e\.g\. 198\.51\.100\.7"):
        check_url("http://2130706433/")
    with pytest.raises(InvalidField, match=r"in target\.headers instead, e\.g\. as authorization"):
        check_url("https://user:secret@example.org/")
    with pytest.raises(InvalidField, match=r"is a private address; .* --egress-allow"):
        check_url("http://10.0.0.1/")
    with pytest.raises(InvalidField, match="it is the port of SMTP"):
        check_url("http://example.org:25/")


def test_a_secret_in_a_url_is_not_repeated() -> None:
    with pytest.raises(InvalidUrl) as caught:
        check_url("https://user:secret@example.org/")
    assert "secret" not in str(caught.value)


def test_loopback_is_accepted_where_it_is_allowed() -> None:
    for host in ["127.0.0.1", "[::1]", "localhost", "worker.localhost"]:
        assert check_url(f"http://{host}:8080/x", OPEN_LOOPBACK).host == host


@pytest.mark.parametrize("method", METHODS)
def test_methods_with_a_body_are_accepted(method: str) -> None:
    check_method(method)


@pytest.mark.parametrize("method", ["GET", "post", "", "POST /x HTTP/1.1\r\n", None, 7])
def test_other_methods_are_refused(method: object) -> None:
    with pytest.raises(UnknownChoice) as caught:
        check_method(method)
    assert caught.value.pointer == "/target/method"


def test_headers_of_a_users_own_are_accepted() -> None:
    check_headers({"x-team": "a", "Authorization": "Bearer a b", "empty": "", "x~y": "!"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", "a"),
        ("x team", "a"),
        ("x:team", "a"),
        ("x\r\nhost", "a"),
        ("ü", "a"),
        ("x" * 65, "a"),
        ("x-team", "a\r\nhost: b"),
        ("x-team", "a\x00"),
        ("x-team", " a"),
        ("x-team", "a "),
        ("x-team", "ü"),
        ("x-team", "a" * 4_097),
        ("Host", "example.org"),
        ("content-length", "1"),
        ("Content-Type", "text/plain"),
        ("transfer-encoding", "chunked"),
        ("Idempotency-Key", "a"),
        ("webhook-signature", "v1,a"),
        ("Wheelsched-Run-Id", "a"),
        ("proxy-authorization", "a"),
        ("traceparent", "a"),
    ],
)
def test_other_headers_are_refused_where_they_are(name: str, value: str) -> None:
    with pytest.raises(InvalidHeader) as caught:
        check_headers({"fine": "a", name: value})
    assert caught.value.pointer == f"/target/headers/{name[:64].replace('~', '~0')}"


def test_too_many_and_duplicate_headers_are_refused() -> None:
    with pytest.raises(InvalidHeader):
        check_headers({f"x-{number}": "a" for number in range(MAX_HEADERS + 1)})
    with pytest.raises(InvalidHeader, match="duplicate"):
        check_headers({"x-team": "a", "X-Team": "b"})


OWN = replace(read_rules([*LOOPBACK]), own=(OwnListener("127.0.0.1", 8420),))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "LocalHost.", "a.localhost", "[::ffff:127.0.0.1]"]
)
def test_our_own_listener_is_refused_as_a_target(host: str) -> None:
    with pytest.raises(TargetForbidden, match="wheelsched itself listens on"):
        check_url(f"http://{host}:8420/api/v1/tokens", OWN)
    assert check_url(f"http://{host}:8421/", OWN).port == 8421


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "[::1]", "localhost"])
def test_a_listener_on_all_addresses_is_refused_on_loopback(host: str) -> None:
    rules = replace(OWN, own=(OwnListener(None, 8420),))
    with pytest.raises(TargetForbidden):
        check_url(f"http://{host}:8420/", rules)


@pytest.mark.parametrize(
    ("url", "listener"),
    [
        ("http://127.0.0.1:9100", OwnListener("127.0.0.1", 9100)),
        ("http://[::1]:9100", OwnListener("::1", 9100)),
        ("http://0.0.0.0:9100", OwnListener(None, 9100)),
        ("http://shard-1.internal:9100", None),
        ("host:1", None),
        ("http://[", None),
        ("http://10.0.0.1:99999", None),
    ],
)
def test_where_a_shard_shows_itself_is_read_from_its_address(
    url: str, listener: OwnListener | None
) -> None:
    assert read_listener(url) == listener
