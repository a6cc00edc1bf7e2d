"""The supported types of payloads, and when others are refused."""

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import pydantic
import pytest
from msgspec import Struct
from tests.unit.worker.callbacks import make_worker, send, single
from typing_extensions import TypedDict  # pydantic wants this one before Python 3.12

from wheelsched.core.outcome import MAX_ERROR_LENGTH
from wheelsched.errors import InvalidHandler, InvalidPayload
from wheelsched.worker.handler import Handler


class Line(pydantic.BaseModel):
    item: str
    amount: int = pydantic.Field(default=1, gt=0)


class Order(pydantic.BaseModel):
    lines: list[Line]
    at: datetime | None = None

    @pydantic.field_validator("lines")
    @classmethod
    def has_lines(cls, lines: list[Line]) -> list[Line]:
        if not lines:
            raise ValueError("an order has at least one line")
        return lines


class Refund(pydantic.BaseModel):
    kind: Literal["refund"]


class Sale(pydantic.BaseModel):
    kind: Literal["sale"]


Event = Annotated[Refund | Sale, pydantic.Field(discriminator="kind")]


@dataclasses.dataclass
class Report:
    customer: int
    pages: int = 1
    tags: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        if self.pages < 1:
            raise ValueError("a report has at least one page")


@pydantic.dataclasses.dataclass
class Checked:
    customer: Annotated[int, pydantic.Field(gt=0)]


@dataclasses.dataclass
class Shipment:
    """A plain dataclass with a model in it."""

    order: Order
    boxes: int = 1


class Parcel(TypedDict):
    order: Order


class Pair(NamedTuple):
    first: Line
    second: Line


class Tree(pydantic.BaseModel):
    children: list["Tree"] = []


class Plain:
    """A class that cannot be decoded from JSON."""


class Holder(Struct):
    plain: Plain


class Nested(Struct):
    line: Line


@dataclasses.dataclass
class Chain:
    following: "Chain | None" = None


def handler_of(payload_type: object) -> Handler:
    def handle(payload: Any) -> None: ...

    handle.__annotations__["payload"] = payload_type
    return Handler(handle)


@pytest.mark.parametrize(
    ("payload_type", "payload", "decoded"),
    [
        (Report, b'{"customer": 7}', Report(7)),
        (Chain, b'{"following": {}}', Chain(Chain())),
        (Line, b'{"item": "pen"}', Line(item="pen")),
        (
            Order,
            b'{"lines": [{"item": "pen"}], "at": "2026-11-18T09:00:00Z"}',
            Order(lines=[Line(item="pen")], at=datetime(2026, 11, 18, 9, tzinfo=UTC)),
        ),
        (list[Line], b'[{"item": "pen"}]', [Line(item="pen")]),
        (dict[str, Line], b'{"a": {"item": "pen"}}', {"a": Line(item="pen")}),
        (Line | None, b"null", None),
        (Event, b'{"kind": "sale"}', Sale(kind="sale")),
        (Refund | Sale, b'{"kind": "refund"}', Refund(kind="refund")),
        (Checked, b'{"customer": 7}', Checked(7)),
        (
            Shipment,
            b'{"order": {"lines": [{"item": "pen"}]}}',
            Shipment(Order(lines=[Line(item="pen")])),
        ),
        (Tree, b'{"children": [{}]}', Tree(children=[Tree()])),
        (pydantic.HttpUrl, b'"https://example.org/"', pydantic.HttpUrl("https://example.org/")),
        (object, b'{"a": [1]}', {"a": [1]}),
        (Any, b"7", 7),
        (Annotated[int, msgspec.Meta(ge=1)], b"7", 7),
    ],
)
def test_a_payload_is_decoded_into_its_type(
    payload_type: object, payload: bytes, decoded: object
) -> None:
    assert handler_of(payload_type).decode(payload) == decoded


@pytest.mark.parametrize(
    ("payload_type", "payload", "message"),
    [
        (Report, b'{"customer": "x"}', r"Expected `int`, got `str` - at `\$.customer`"),
        (Report, b'{"customer": 7, "pages": 0}', "a report has at least one page"),
        (Line, b'{"item": 7}', r"Input should be a valid string - at `\$.item`"),
        (Line, b"{}", r"Field required - at `\$.item`"),
        (Line, b'{"item": ', "Invalid JSON"),
        (Line, b"\xff", "Invalid JSON"),
        (Line, b"[" * 100_000, "Invalid JSON"),
        (Order, b'{"lines": []}', "an order has at least one line"),
        (
            Order,
            b'{"lines": [{"item": "pen", "amount": 0}]}',
            r"Input should be greater than 0 - at `\$.lines\[0\].amount`",
        ),
        (Event, b'{"kind": "loan"}', "'refund', 'sale'"),
        (Checked, b'{"customer": 0}', "greater than 0"),
        (Parcel, b'{"order": {"lines": []}}', "an order has at least one line"),
        (Pair, b'[{"item": "pen"}]', "Missing required argument|Field required"),
        (Annotated[int, pydantic.Field(gt=0)], b"0", "greater than 0"),
        (Annotated[int, msgspec.Meta(ge=1)], b"0", "Expected `int` >= 1"),
    ],
)
def test_a_payload_that_does_not_fit_says_where(
    payload_type: object, payload: bytes, message: str
) -> None:
    with pytest.raises(InvalidPayload, match=message):
        handler_of(payload_type).decode(payload)


async def test_an_invalid_payload_is_answered_with_422_and_a_bounded_message() -> None:
    worker = make_worker()

    @worker.job("report")
    async def handle(order: Order) -> None:
        raise AssertionError("it is not called")

    lines = [{"item": "the secret", "amount": "x" * 100}] * 1_000
    answer = await send(worker, single(msgspec.json.encode({"lines": lines})))
    assert answer.status == 422
    message = answer.body.decode()
    assert len(message) <= MAX_ERROR_LENGTH
    assert "`$.lines[0].amount`" in message
    assert "995 more" in message
    assert "xxx" not in message


def test_a_validator_that_breaks_is_not_the_payload_s_fault() -> None:
    class Broken(pydantic.BaseModel):
        value: int

        @pydantic.field_validator("value")
        @classmethod
        def divide(cls, value: int) -> float:
            return 1 / value

    with pytest.raises(ZeroDivisionError):
        handler_of(Broken).decode(b'{"value": 0}')


@pytest.mark.parametrize(
    "payload_type",
    [
        *(Plain, list[Plain], Plain | None, Holder, Nested, complex),
        *(Callable[[], None], Report | Chain, Line | Plain),
    ],
)
def test_a_type_that_nothing_can_be_decoded_into_is_refused_at_once(payload_type: object) -> None:
    with pytest.raises(TypeError, match=r"dataclasses.*pydantic") as refused:
        handler_of(payload_type)
    assert isinstance(refused.value, InvalidHandler)


def test_pydantic_is_not_needed_and_not_imported() -> None:
    program = """
import sys
from dataclasses import dataclass
sys.modules["pydantic"] = None
from wheelsched.worker.handler import Handler

@dataclass
class Report:
    customer: int

def handle(report: Report): pass

assert Handler(handle).decode(b'{"customer": 7}') == Report(7)

class Claims:
    def __get_pydantic_core_schema__(self): pass

def claim(payload: Claims): pass

try:
    Handler(claim)
except TypeError:
    sys.exit(0)
sys.exit(1)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
