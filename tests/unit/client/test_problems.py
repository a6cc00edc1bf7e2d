import pytest

from wheelsched.client.problems import read_problem
from wheelsched.errors import ApiUnavailable


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<h1>Bad Gateway</h1>",
        b"\xff",
        b'{"type": "about:blank", "title": "caf\xe9", "status": 502}',
        b"[" * 5_000,
    ],
    ids=["nothing", "a page", "no text", "no UTF-8", "nested"],
)
def test_a_response_that_is_not_a_problem_document_is_an_error(body: bytes) -> None:
    error = read_problem(502, body)
    assert isinstance(error, ApiUnavailable)
    assert str(error).startswith("unexpected response 502 Bad Gateway")
