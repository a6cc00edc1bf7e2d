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
def test_an_answer_that_is_no_problem_of_ours_is_an_error_all_the_same(body: bytes) -> None:
    error = read_problem(502, body)
    assert isinstance(error, ApiUnavailable)
    assert str(error).startswith("the answer was 502 Bad Gateway")
