import pytest

from wheelsched.store.connections.hosts import Host, read_hosts


@pytest.fixture(autouse=True)
def no_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGHOST", raising=False)
    monkeypatch.delenv("PGPORT", raising=False)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@a,b/d", [Host("a", 5432), Host("b", 5432)]),
        ("postgresql://u@a:1,b:2,c/d?sslmode=require", [("a", 1), ("b", 2), ("c", 5432)]),
        ("postgresql:///d?host=a:1,b&port=7", [("a", 1), ("b", 7)]),
        ("postgresql://[::1]:1,[fe80::2]/d", [("::1", 1), ("fe80::2", 5432)]),
        ("postgresql:///d?host=a,b&port=1,2", [("a", 1), ("b", 2)]),
        ("postgresql://u@/d?host=/run/x,/run/y&port=1,2", [("/run/x", 1), ("/run/y", 2)]),
        ("postgresql://%2Frun%2Fx,b/d", [("/run/x", 5432), ("b", 5432)]),
    ],
)
def test_every_host_has_its_port(url: str, expected: list[Host]) -> None:
    assert read_hosts(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p@a:1/d",
        "postgresql:///d?host=/run/x",
        "postgresql:///d",
        "postgresql://a,,b/d",
        "postgresql:///d?host=a,b,c&port=1,2",
    ],
)
def test_one_host_or_an_invalid_list_is_left_to_asyncpg(url: str) -> None:
    assert read_hosts(url) == []


def test_hosts_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "a,b")
    monkeypatch.setenv("PGPORT", "1,2")
    assert read_hosts("postgresql:///d") == [("a", 1), ("b", 2)]
