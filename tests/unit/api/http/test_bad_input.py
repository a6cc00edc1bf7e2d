"""Invalid and malicious requests, each with its status and pointer."""

import json
from typing import Any

import pytest
from tests.api import Api, document

GOOD = json.dumps(document()).encode()


def written(**changes: str) -> bytes:
    """The document with raw field values, which may not be valid JSON."""
    fields = {name: json.dumps(value) for name, value in document().items()} | changes
    return ("{" + ",".join(f'"{name}": {value}' for name, value in fields.items()) + "}").encode()


@pytest.mark.parametrize(
    ("body", "status", "pointers"),
    [
        (b"", 400, [""]),
        (GOOD[:-5], 400, [""]),
        (GOOD + b"x", 400, [""]),
        (b'{"a": 1, "a": 1, "b"', 400, [""]),
        (b'{"a": NaN, "b": ' + b"[" * 200_000, 400, [""]),
        (b"[" * 200_000, 400, [""]),
        (b"[]", 422, [""]),
        (b'"text"', 422, [""]),
        (b"\xff\xfe", 400, [""]),
        (written(payload="[" * 100 + "]" * 100), 400, ["/payload" + "/0" * 64]),
        (written(name='"a", "name": "b"'), 400, ["/name"]),
        (written(payload='{"a": {"b": 1, "b": 1}}'), 400, ["/payload/a/b"]),
        (written(priority="NaN"), 400, ["/priority"]),
        (written(payload="[Infinity]"), 400, ["/payload/0"]),
        (written(priority="9" * 5_000), 400, ["/priority"]),
        (written(priority="9" * 30), 422, ["/priority"]),
        (written(payload="9" * 5_000), 400, ["/payload"]),
        (written(name=r'"a\u0000b"'), 400, ["/name"]),
        (written(payload=r'{"a": ["\u0000"]}'), 400, ["/payload/a/0"]),
        (written(name=r'"\ud800"'), 400, ["/name"]),
        (written(payload=r'{"\udfff": 1}'), 400, ["/payload"]),
        (written().replace(b"weekly", b"\xff"), 400, [""]),
    ],
)
async def test_invalid_job_documents_are_rejected(
    api: Api, body: bytes, status: int, pointers: list[str]
) -> None:
    refused = await api.post("/jobs", body)
    assert (refused.status, refused.pointers) == (status, pointers)
    assert refused.headers["Content-Type"].startswith("application/problem+json")
    assert refused.body.keys() >= {"type", "title", "status", "detail", "errors"}


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"colour": "red"}, "/colour"),
        ({"a/b~c": 1}, "/a~1b~0c"),
        ({"name": None}, "/name"),
        ({"name": ""}, "/name"),
        ({"name": "   "}, "/name"),
        ({"name": "x" * 10_000}, "/name"),
        ({"name": "a\x07b"}, "/name"),
        ({"name": "a\u202eb"}, "/name"),
        ({"name": ["a"]}, "/name"),
        ({"payload": "x" * (256 << 10)}, "/payload"),
        ({"timeout": 0}, "/timeout"),
        ({"timeout": "0s"}, "/timeout"),
        ({"timeout": 10**9}, "/timeout"),
        ({"timeout": "1000000000s"}, "/timeout"),
        ({"retry": {"max_attempts": 1_000_000}}, "/retry/max_attempts"),
        ({"retry": {"max_attempts": -1}}, "/retry/max_attempts"),
        ({"retry": {"backoff": "magic"}}, "/retry/backoff"),
        ({"retry": {"tries": 3}}, "/retry/tries"),
        ({"retry": "often"}, "/retry"),
        ({"misfire": {"grace": "2h", "window": "1h"}}, "/misfire/window"),
        ({"overlap": {"policy": "skip", "max_concurrent": 2}}, "/overlap/max_concurrent"),
        ({"priority": True}, "/priority"),
        ({"priority": 101}, "/priority"),
        ({"jitter": "1y"}, "/jitter"),
        ({"dst": {"gap": "leap"}}, "/dst/gap"),
        ({"dst": {"gap": ""}}, "/dst/gap"),
        ({"dst": {"overlap": ""}}, "/dst/overlap"),
        ({"timezone": "Europe/Atlantis"}, "/timezone"),
        ({"timezone": ""}, "/timezone"),
        ({"jitter": ""}, "/jitter"),
        ({"idempotency_key": ""}, "/idempotency_key"),
        ({"tags": {"a:b": "c"}}, "/tags/a:b"),
        ({"timezone": "../../etc/passwd"}, "/timezone"),
        ({"idempotency_key": "always-the-same"}, "/idempotency_key"),
        ({"idempotency_key": "{{password}}"}, "/idempotency_key"),
        ({"tags": {"a": 1}}, "/tags/a"),
        ({"tags": {"a": "b\nc"}}, "/tags/a"),
        ({"tags": ["a"]}, "/tags"),
    ],
)
async def test_invalid_fields_are_rejected(api: Api, changes: dict[str, Any], pointer: str) -> None:
    refused = await api.post("/jobs", document(**changes))
    assert (refused.status, refused.pointers) == (422, [pointer])


@pytest.mark.parametrize(
    ("schedule", "pointer"),
    [
        (None, "/schedule"),
        (5, "/schedule"),
        ("", "/schedule"),
        ([], "/schedule"),
        ({}, "/schedule"),
        ("* * * *", "/schedule"),
        ("61 * * * *", "/schedule"),
        ("0 0 30 2 *", "/schedule"),
        ("@every 5m", "/schedule"),
        ("TZ=UTC 0 9 * * *", "/schedule"),
        ("every 0s", "/schedule"),
        ("every -5m", "/schedule"),
        ("2001-01-01T00:00:00Z", "/schedule"),
        ("2026-02-30T00:00:00", "/schedule"),
        ("9999-01-01T00:00:00Z", "/schedule"),
        ("RRULE:FREQ=NEVER", "/schedule"),
        ("* " * 1_000, "/schedule"),
        ({"cron": "0 9 * * *", "every": "5m"}, "/schedule"),
        ({"cron": "0 9 * * *", "colour": "red"}, "/schedule/colour"),
        ({"cron": "0 25 * * *"}, "/schedule/cron"),
        ({"cron": "0 9 * * *", "start": "soon"}, "/schedule/start"),
        ({"every": "5m", "start": "2030-01-02", "end": "2030-01-01"}, "/schedule/end"),
        ({"every": "5m", "end": "2001-01-01"}, "/schedule/end"),
        ({"cron": "0 9 * * *", "exclude": "2026-12-25"}, "/schedule/exclude"),
        ({"cron": "0 9 * * *", "exclude": ["2026-12-25", "x"]}, "/schedule/exclude/1"),
    ],
)
async def test_invalid_schedules_are_rejected(api: Api, schedule: Any, pointer: str) -> None:
    for path in ("/jobs", "/preview"):
        refused = await api.post(path, document(schedule=schedule))
        assert (refused.status, refused.pointers) == (422, [pointer]), refused.body


async def test_a_jitter_longer_than_the_interval(api: Api) -> None:
    refused = await api.post("/jobs", document(schedule="every 5m", jitter="6m"))
    assert (refused.status, refused.pointers) == (422, ["/jitter"])


@pytest.mark.parametrize(
    "url",
    [
        "",
        "report",
        "//example.org/",
        "file:///etc/passwd",
        "gopher://example.org/",
        "javascript:alert(1)",
        "https://user:secret@example.org/",
        "https://example.org/\r\nX-Evil: 1",
        "https://example.org/ x",
        "https://example.org/" + "x" * 2_048,
        "http://localhost/",
        "http://LOCALHOST./",
        "http://a.localhost/",
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://0.0.0.0/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/",
        "http://100.100.100.200/",
        "http://10.0.0.1/",
        "http://192.168.1.1/",
        "http://[fe80::1]/",
        "https://example.org:99999/",
        "https://example.org:22/",
    ],
)
async def test_forbidden_target_urls_are_rejected(api: Api, url: str) -> None:
    refused = await api.post("/jobs", document(target={"url": url}))
    assert (refused.status, refused.pointers) == (422, ["/target/url"])


@pytest.mark.parametrize(
    ("headers", "pointer"),
    [
        ({"Host": "evil.example"}, "/target/headers/Host"),
        ({"content-length": "5"}, "/target/headers/content-length"),
        ({"webhook-signature": "x"}, "/target/headers/webhook-signature"),
        ({"wheelsched-run-id": "x"}, "/target/headers/wheelsched-run-id"),
        ({"x\r\ny": "z"}, "/target/headers/x\r\ny"),
        ({"x y": "z"}, "/target/headers/x y"),
        ({"": "z"}, "/target/headers/"),
        ({"x": "a\r\nb: c"}, "/target/headers/x"),
        ({"x": "ä"}, "/target/headers/x"),
        ({"x": "v" * 10_000}, "/target/headers/x"),
        ({"x": 5}, "/target/headers/x"),
        ({f"x-{n}": "" for n in range(100)}, "/target/headers"),
    ],
)
async def test_forbidden_target_headers_are_rejected(
    api: Api, headers: dict[str, Any], pointer: str
) -> None:
    target = {"url": "https://example.org/", "headers": headers}
    refused = await api.post("/jobs", document(target=target))
    assert (refused.status, refused.pointers) == (422, [pointer])


@pytest.mark.parametrize(
    ("target", "pointer"),
    [
        ({}, "/target"),
        ({"url": None}, "/target"),
        ({"batch": 2}, "/target/url"),
        ({"url": "https://example.org/", "method": "BREW"}, "/target/method"),
        ({"url": "https://example.org/", "method": "GET"}, "/target/method"),
        ({"url": "https://example.org/", "method": "DELETE"}, "/target/method"),
        ({"url": "https://example.org/", "method": ""}, "/target/method"),
        ({"url": "https://example.org/", "batch": 1_001}, "/target/batch"),
        ({"url": "https://example.org/", "follow": True}, "/target/follow"),
        ("https://example.org/", "/target"),
    ],
)
async def test_invalid_targets_are_rejected(api: Api, target: Any, pointer: str) -> None:
    refused = await api.post("/jobs", document(target=target))
    assert (refused.status, refused.pointers) == (422, [pointer])


async def test_a_body_of_ten_mebibytes_is_too_large(api: Api) -> None:
    refused = await api.post("/jobs", b'"' + b"x" * (10 << 20) + b'"')
    assert refused.status == 413


@pytest.mark.parametrize(
    ("method", "verb"), [("POST", "/pause"), ("POST", "/trigger"), ("GET", ""), ("DELETE", "")]
)
async def test_an_operation_without_a_body_rejects_one(api: Api, method: str, verb: str) -> None:
    path = f"/jobs/{(await api.create())['job_id']}{verb}"
    for body, status, pointers in (
        (b'{"until": "2030-01-01"}', 422, ["/until"]),
        (b"[]", 422, [""]),
        (b"null", 422, [""]),
        (b"{", 400, [""]),
        (b'{"a": 1, "a": 1}', 400, ["/a"]),
    ):
        refused = await api.call(method, path, body)
        assert (refused.status, refused.pointers) == (status, pointers), refused.body
    typed = await api.call(method, path, b"{}", headers={"Content-Type": "text/plain"})
    assert typed.status == 415
    assert (await api.get(path.removesuffix(verb))).body["state"] == "active"
    assert (await api.call(method, path, b" {} ")).status < 300


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/xml", "application/json; charset=latin-1"]
)
async def test_an_unsupported_content_type_is_rejected(api: Api, content_type: str) -> None:
    refused = await api.post("/jobs", GOOD, headers={"Content-Type": content_type})
    assert refused.status == 415


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limit=-1", "/limit"),
        ("limit=0", "/limit"),
        ("limit=1001", "/limit"),
        ("limit=many", "/limit"),
        ("limit=5&limit=6", "/limit"),
        ("colour=red", "/colour"),
        ("state=happy", "/state"),
        ("tag=team", "/tag"),
        ("name=a%00b", "/name"),
        ("cursor=forged", "/cursor"),
        ("cursor=", "/cursor"),
        ("cursor=%C3%A4", "/cursor"),
        ("cursor=" + "A" * 5_000, "/cursor"),
    ],
)
async def test_invalid_query_parameters_are_rejected(api: Api, query: str, pointer: str) -> None:
    refused = await api.get(f"/jobs?{query}")
    assert (refused.status, refused.pointers) == (400, [pointer])


async def test_a_cursor_of_another_list_is_invalid(api: Api) -> None:
    for number in range(3):
        await api.create(name=f"job-{number}")
    cursor = (await api.get("/jobs?limit=1")).body["next_cursor"]
    for query in (f"cursor={cursor}&state=active", f"cursor={cursor[:-1]}A", f"cursor={cursor}A"):
        assert (await api.get(f"/jobs?limit=1&{query}")).pointers == ["/cursor"]
    assert (await api.get(f"/dead?cursor={cursor}")).pointers == ["/cursor"]


async def test_a_header_over_the_limit(api: Api) -> None:
    refused = await api.get("/jobs", headers={"X-Long": "x" * 20_000})
    assert refused.status == 431
    assert refused.headers["Content-Type"].startswith("application/problem+json")


async def test_unknown_paths_and_methods_are_rejected(api: Api) -> None:
    missing = await api.get("/nothing")
    assert (missing.status, missing.body["type"]) == (404, "about:blank")
    wrong = await api.call("PUT", "/jobs", document())
    assert (wrong.status, wrong.headers["Allow"]) == (405, "GET, POST")
