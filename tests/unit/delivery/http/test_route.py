import gc
from uuid import uuid4

import pytest

from wheelsched import __version__
from wheelsched.core.model import HttpTarget
from wheelsched.core.targets.egress import read_rules
from wheelsched.delivery.http.route import RouteTable

TENANT_ID = uuid4()
URL = "https://Example.org/hooks"


def test_the_same_target_has_the_same_route_while_it_is_held() -> None:
    routes = RouteTable(read_rules([]))
    route = routes.get(TENANT_ID, HttpTarget(url=URL, headers={"a": "1", "b": "2"}))
    assert routes.get(TENANT_ID, HttpTarget(url=URL, headers={"b": "2", "a": "1"})) is route
    assert len(routes) == 1
    del route
    gc.collect()
    assert len(routes) == 0


def test_whatever_differs_makes_another_route() -> None:
    routes = RouteTable(read_rules([]))
    made = [
        routes.get(TENANT_ID, HttpTarget(url=URL)),
        routes.get(uuid4(), HttpTarget(url=URL)),
        routes.get(TENANT_ID, HttpTarget(url=URL + "2")),
        routes.get(TENANT_ID, HttpTarget(url=URL, method="PUT")),
        routes.get(TENANT_ID, HttpTarget(url=URL, headers={"a": "1"})),
        routes.get(TENANT_ID, HttpTarget(url=URL, batch=2)),
    ]
    assert len(set(made)) == len(routes) == len(made)


def test_targets_of_one_host_share_its_origin() -> None:
    routes = RouteTable(read_rules([]))
    origins = {
        routes.get(TENANT_ID, HttpTarget(url=url)).origin
        for url in [URL, "HTTPS://example.org:443/", "https://EXAMPLE.ORG?a=b"]
    }
    assert origins == {"https://example.org:443"}


def test_a_target_that_cannot_be_used_has_a_route_that_says_so() -> None:
    routes = RouteTable(read_rules([]))
    for target in [
        HttpTarget(url="http://10.0.0.1/"),
        HttpTarget(url=URL, method="GET"),
        HttpTarget(url=URL, headers={"host": "a"}),
    ]:
        refusal = routes.get(TENANT_ID, target).refusal
        assert refusal is not None
        assert refusal.startswith("the target cannot be used: ")


def head_of(target: HttpTarget) -> list[str]:
    head = RouteTable(read_rules([])).get(TENANT_ID, target).head
    assert head.endswith(b"\r\n")
    return head.decode("ascii").split("\r\n")[:-1]


def test_the_head_of_a_route_is_ready() -> None:
    target = HttpTarget(
        url="https://Example.org:8443/a?b=c", method="PUT", headers={"x-team": "a b"}
    )
    assert head_of(target) == [
        "PUT /a?b=c HTTP/1.1",
        "Host: example.org:8443",
        "Content-Type: application/json",
        "x-team: a b",
        f"User-Agent: wheelsched/{__version__}",
    ]


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://example.org:443/", "example.org"),
        ("http://example.org/", "example.org"),
        ("http://example.org:443/", "example.org:443"),
        ("https://[2606:4700::1111]/", "[2606:4700::1111]"),
    ],
)
def test_the_host_has_its_port_unless_the_scheme_says_it(url: str, host: str) -> None:
    assert head_of(HttpTarget(url=url))[1] == f"Host: {host}"


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("/a/../b/./c%2F%e4?q=%20&r[]=1#fragment", "/a/../b/./c%2F%e4?q=%20&r%5B%5D=1"),
        ("/wöchentlich?ü=é", "/w%C3%B6chentlich?%C3%BC=%C3%A9"),
        ('/100%/%zz"<>', "/100%25/%25zz%22%3C%3E"),
        ("?a=b", "/?a=b"),
    ],
)
def test_a_path_is_sent_as_written_where_a_request_line_can_carry_it(
    written: str, sent: str
) -> None:
    assert head_of(HttpTarget(url=f"https://example.org{written}"))[0] == f"POST {sent} HTTP/1.1"


@pytest.mark.parametrize("evil", ["\r\nX-Evil: 1", "\nX-Evil: 1", "\rX-Evil: 1", "\x00", "\x85"])
def test_nothing_that_breaks_a_line_comes_into_a_head(evil: str) -> None:
    routes = RouteTable(read_rules([]))
    for target in [
        HttpTarget(url=f"{URL}/{evil}"),
        HttpTarget(url=f"https://example.org{evil}/"),
        HttpTarget(url=URL, method=f"POST{evil}"),
        HttpTarget(url=URL, headers={f"a{evil}": "b"}),
        HttpTarget(url=URL, headers={"a": f"b{evil}"}),
        HttpTarget(url=URL, headers={"a": f"b{evil}c"}),
    ]:
        route = routes.get(TENANT_ID, target)
        assert route.refusal is not None
        assert route.head == b""
