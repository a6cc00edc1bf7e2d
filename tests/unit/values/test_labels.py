import pytest

from wheelsched.errors import InvalidName
from wheelsched.values.labels import MAX_TAGS, check_name, check_tags


@pytest.mark.parametrize(
    "name", ["weekly-report", "a", "x" * 255, "Wöchentlich 週報 🎉", "<script>alert(1)</script>"]
)
def test_a_name_stays_as_it_was_written(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "\u3000",
        " report",
        "report\n",
        "x" * 256,
        "x" * 10_000,
        "a\x00b",
        "a\x1b[31mb",
        "a\u2028b",
        "invoice\u202efdp",
        "a\u2066b",
        "a\x85b",
        "a\ud800b",
    ],
)
def test_a_name_that_cannot_be_shown(name: str) -> None:
    with pytest.raises(InvalidName) as caught:
        check_name(name)
    assert caught.value.pointer == "/name"
    assert len(str(caught.value)) < 200


def test_tags_stay_as_they_were_written() -> None:
    assert check_tags({"team": "a", "note": ""}) == {"team": "a", "note": ""}


@pytest.mark.parametrize(
    ("tags", "pointer"),
    [
        ({"": "a"}, "/tags/"),
        ({"k" * 65: "a"}, "/tags/" + "k" * 64),
        ({"a/b": "v" * 256}, "/tags/a~1b"),
        ({"a": "b\nc"}, "/tags/a"),
        ({"a:b": "c"}, "/tags/a:b"),
        ({f"tag{n}": "" for n in range(MAX_TAGS + 1)}, "/tags"),
    ],
)
def test_tags_that_cannot_be_kept(tags: dict[str, str], pointer: str) -> None:
    with pytest.raises(InvalidName) as caught:
        check_tags(tags)
    assert caught.value.pointer == pointer
