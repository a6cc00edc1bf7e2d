from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelsched.api.http.cursors import Cursors
from wheelsched.core.model import RunKey
from wheelsched.errors import InvalidCursor
from wheelsched.ports import JobFilter

TENANT = UUID(int=7)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00")))  # as Postgres has it
def test_a_cursor_is_read_back(name: str) -> None:
    cursors = Cursors(TENANT, "jobs")
    assert cursors.read(cursors.write(name), str) == name


def test_a_position_may_be_a_tuple() -> None:
    cursors = Cursors(TENANT, "dead")
    key = RunKey(uuid4(), 1_794_837_600_000_000)
    assert cursors.read(cursors.write(key), RunKey) == key


@pytest.mark.parametrize(
    "other",
    [
        Cursors(UUID(int=8), "jobs"),
        Cursors(TENANT, "runs"),
        Cursors(TENANT, "jobs", JobFilter(name="a")),
    ],
)
def test_a_cursor_of_another_list_is_rejected(other: Cursors) -> None:
    with pytest.raises(InvalidCursor) as caught:
        Cursors(TENANT, "jobs").read(other.write("a"), str)
    assert caught.value.pointer == "/cursor"


@given(st.text(max_size=60))
def test_other_text_is_rejected(text: str) -> None:
    with pytest.raises(InvalidCursor):
        Cursors(TENANT, "jobs").read(text, str)


@pytest.mark.parametrize(
    ("forged", "position"),
    [
        (7, str),
        ("a\x00", str),
        ("a", int),
        (-1, int),
        (1 << 70, int),
        ((uuid4(), 1 << 63), RunKey),
        ((uuid4(), -1), RunKey),
        (("x", 1), RunKey),
        ([], RunKey),
    ],
)
def test_an_impossible_position_is_rejected_despite_its_checksum(
    forged: object, position: type
) -> None:
    cursors = Cursors(TENANT, "jobs")
    with pytest.raises(InvalidCursor):
        cursors.read(cursors.write(forged), position)
