from enum import StrEnum

import pytest

from wheelsched.errors import (
    FieldOutOfRange,
    InvalidDocument,
    InvalidDuration,
    InvalidField,
    UnknownChoice,
    UnknownField,
    WrongType,
)
from wheelsched.values.duration import HOUR, MINUTE, SECOND
from wheelsched.values.fields import Fields


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def only_problem(fields: Fields) -> InvalidField:
    (problem,) = fields.problems
    return problem


def test_an_absent_or_null_field_has_its_default() -> None:
    fields = Fields({"n": None, "d": None, "c": None, "o": None})
    for name in ("n", "missing"):
        assert fields.integer(name, 7, least=0, most=9) == 7
    for name in ("d", "missing"):
        assert fields.duration(name, MINUTE, least_us=0, most_us=HOUR) == MINUTE
    for name in ("c", "missing"):
        assert fields.choice(name, Colour.RED) is Colour.RED
    for name in ("n", "missing"):
        assert fields.optional_integer(name, least=0, most=9) is None
    fields.nested("o").refuse_unknown()
    fields.refuse_unknown()
    fields.raise_problems()


def test_a_field_is_read() -> None:
    fields = Fields({"n": 3, "d": "90s", "c": "blue"})
    assert fields.integer("n", 7, least=0, most=9) == 3
    assert fields.duration("d", MINUTE, least_us=0, most_us=HOUR) == 90 * SECOND
    assert fields.choice("c", Colour.RED) is Colour.BLUE
    assert fields.problems == []


def test_both_ends_of_a_range_are_within_it() -> None:
    fields = Fields({"least": 0, "most": 9, "shortest": "1s", "longest": "1h"})
    assert fields.integer("least", 7, least=0, most=9) == 0
    assert fields.integer("most", 7, least=0, most=9) == 9
    assert fields.duration("shortest", MINUTE, least_us=SECOND, most_us=HOUR) == SECOND
    assert fields.duration("longest", MINUTE, least_us=SECOND, most_us=HOUR) == HOUR


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (True, "true"),
        (3.0, "3.0"),
        ("3", "'3'"),
        ([3], "an array"),
        ({"n": 3}, "an object"),
    ],
)
def test_only_a_whole_number_is_a_whole_number(written: object, shown: str) -> None:
    fields = Fields({"n": written})
    assert fields.integer("n", 7, least=0, most=9) == 7
    problem = only_problem(fields)
    assert isinstance(problem, WrongType)
    assert str(problem) == f"{shown} is not a whole number"


@pytest.mark.parametrize("written", [-1, 10, pytest.param(10**5_000, id="5,000 digits")])
def test_a_number_out_of_range_is_refused_with_the_range(written: int) -> None:
    fields = Fields({"n": written})
    assert fields.integer("n", 7, least=0, most=9) == 7
    problem = only_problem(fields)
    assert isinstance(problem, FieldOutOfRange)
    assert str(problem).endswith("is out of range; expected 0 to 9")
    assert len(str(problem)) < 100


def test_a_number_is_not_a_duration() -> None:
    fields = Fields({"d": 90})
    fields.duration("d", MINUTE, least_us=0, most_us=HOUR)
    problem = only_problem(fields)
    assert isinstance(problem, WrongType)
    assert str(problem) == "90 is not a valid duration; write text, e.g. '90s'"


def test_a_duration_that_cannot_be_read_is_refused_at_its_field() -> None:
    fields = Fields({"d": "soon"}, pointer="/misfire")
    assert fields.duration("d", MINUTE, least_us=0, most_us=HOUR) == MINUTE
    problem = only_problem(fields)
    assert isinstance(problem, InvalidDuration)
    assert problem.pointer == "/misfire/d"


@pytest.mark.parametrize("written", ["0s", "2h"])
def test_a_duration_out_of_range_is_refused_with_the_range(written: str) -> None:
    fields = Fields({"d": written})
    fields.duration("d", MINUTE, least_us=SECOND, most_us=HOUR)
    problem = only_problem(fields)
    assert isinstance(problem, FieldOutOfRange)
    assert str(problem) == f"'{written}' is out of range; expected '1s' to '1h'"


@pytest.mark.parametrize("written", ["green", "RED", "", 1, ["red"], {"red": 1}])
def test_an_unknown_choice_is_refused_with_the_choices(written: object) -> None:
    fields = Fields({"c": written})
    assert fields.choice("c", Colour.RED) is Colour.RED
    problem = only_problem(fields)
    assert isinstance(problem, UnknownChoice)
    assert str(problem).endswith("is not valid; must be one of: red, blue")


@pytest.mark.parametrize("written", ["text", 1, [], True])
def test_a_value_that_is_not_an_object_has_no_fields(written: object) -> None:
    fields = Fields({"o": written})
    assert fields.nested("o").optional_integer("n", least=0, most=9) is None
    assert only_problem(fields).pointer == "/o"


def test_an_unknown_field_is_refused() -> None:
    fields = Fields({"n": 3, "m/n~o": 4})
    fields.integer("n", 7, least=0, most=9)
    fields.refuse_unknown()
    problem = only_problem(fields)
    assert isinstance(problem, UnknownField)
    assert problem.pointer == "/m~1n~0o"
    assert str(problem) == "unknown field 'm/n~o'; known fields: n"


def test_all_problems_are_raised_at_once() -> None:
    fields = Fields({"n": -1, "o": {"c": "green"}})
    fields.integer("n", 7, least=0, most=9)
    fields.nested("o").choice("c", Colour.RED)
    with pytest.raises(InvalidDocument, match=r"/n: -1 is out of range.*; /o/c: 'green'") as caught:
        fields.raise_problems()
    assert [error.pointer for error in caught.value.errors] == ["/n", "/o/c"]
