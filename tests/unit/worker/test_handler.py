import asyncio
import contextvars
import functools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from msgspec import Raw, Struct
from tests.unit.worker.callbacks import single

from wheelsched.errors import HandlerUnfinished, InvalidHandler, InvalidPayload
from wheelsched.worker.delivery import Delivery, Run, read_request
from wheelsched.worker.handler import Handler


class Report(Struct):
    name: str
    pages: int = 1


class Other(Struct):
    title: str


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


@pytest.fixture
def run() -> Run:
    headers, body = single()
    delivery = read_request(headers, body, headers["webhook-id"])
    assert isinstance(delivery, Delivery)
    return Run(**msgspec.structs.asdict(delivery))


async def test_the_payload_is_decoded_into_its_annotation(
    run: Run, threads: ThreadPoolExecutor
) -> None:
    seen: list[object] = []

    async def handle(payload: Report, run: Run) -> None:
        seen.extend((payload, run))

    handler = Handler(handle)
    await handler.call(handler.decode(b'{"name": "weekly"}'), run, threads)
    assert seen == [Report("weekly"), run]


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b'{"name": 7}', r"Expected `str`, got `int` - at `\$.name`"),
        (b"{}", "missing required field `name`"),
        (b'{"name": ', "truncated"),
        (b"", "truncated"),
        (b"\xff\xfe", "JSON"),
        (b"[" * 100_000, "Expected `object`, got `array`"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_with_the_place(
    payload: bytes, message: str
) -> None:
    def handle(payload: Report) -> None: ...

    with pytest.raises(InvalidPayload, match=message):
        Handler(handle).decode(payload)


def test_a_payload_without_a_type_is_plain_json() -> None:
    def handle(payload) -> None: ...  # type: ignore[no-untyped-def]  # as users may write it

    assert Handler(handle).decode(b'{"a": [1]}') == {"a": [1]}


def test_a_raw_payload_is_byte_for_byte() -> None:
    def handle(payload: Raw) -> None: ...

    decoded = Handler(handle).decode(b'{ "a":\t1 }')
    assert isinstance(decoded, Raw)
    assert bytes(decoded) == b'{ "a":\t1 }'


async def test_a_function_that_is_not_async_runs_in_a_thread_with_its_context(
    run: Run, threads: ThreadPoolExecutor
) -> None:
    variable = contextvars.ContextVar("variable", default="unset")
    seen: list[object] = []

    def handle(payload: object) -> None:
        seen.extend((threading.current_thread() is threading.main_thread(), variable.get()))

    variable.set("of the caller")
    await Handler(handle).call({}, run, threads)
    assert seen == [False, "of the caller"]


async def test_a_decorated_handler_keeps_its_type_and_its_kind(
    run: Run, threads: ThreadPoolExecutor
) -> None:
    seen: list[Report] = []

    def measured(function: Callable[[Report], Awaitable[None]]) -> Callable[[Report], Any]:
        @functools.wraps(function)
        async def wrapper(payload: Report) -> None:
            await function(payload)

        return wrapper

    @measured
    async def handle(payload: Report) -> None:
        seen.append(payload)

    handler = Handler(handle)
    await handler.call(handler.decode(b'{"name": "x"}'), run, threads)
    assert seen == [Report("x")]


async def ran(payload: Report, seen: list[Report]) -> None:
    seen.append(payload)


class Service:
    """An object that is a handler."""

    def __init__(self, seen: list[Report]) -> None:
        self._seen = seen

    async def __call__(self, payload: Report) -> None:
        await ran(payload, self._seen)


def undressed(function: Callable[[Report], object]) -> Callable[[Report], object]:
    """A decorator that forgets `functools.wraps`."""

    def wrapper(payload: Report) -> object:
        return function(payload)

    return wrapper


def returning(seen: list[Report]) -> Callable[[Report], object]:
    """An async function that returns an awaitable instead of awaiting it."""

    async def handle(payload: Report) -> object:
        return ran(payload, seen)

    return handle


@pytest.mark.parametrize(
    "make",
    [
        Service,
        lambda seen: Service(seen).__call__,
        lambda seen: undressed(Service(seen)),
        lambda seen: lambda payload: ran(payload, seen),
        lambda seen: functools.partial(ran, seen=seen),
        returning,
        lambda seen: undressed(returning(seen)),
    ],
)
async def test_an_awaitable_is_awaited_whatever_wraps_it(
    make: Callable[[list[Report]], Callable[..., object]], run: Run, threads: ThreadPoolExecutor
) -> None:
    seen: list[Report] = []
    await Handler(make(seen)).call(Report("x"), run, threads)
    assert seen == [Report("x")]


def test_the_payload_of_an_object_or_a_partial_is_decoded_into_its_annotation() -> None:
    for function in (Service([]), functools.partial(ran, seen=[])):
        assert Handler(function).decode(b'{"name": "x"}') == Report("x")


def yielding(payload: object) -> Iterator[int]:
    yield 1


async def yielding_later(payload: object) -> AsyncIterator[int]:
    yield 1


class YieldingService:
    def __call__(self, payload: object) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    "function",
    [
        yielding,
        yielding_later,
        YieldingService(),
        YieldingService().__call__,
        functools.partial(yielding),
    ],
)
def test_a_generator_function_is_not_a_handler(function: Callable[..., object]) -> None:
    with pytest.raises(InvalidHandler, match="yield"):
        Handler(function)


@pytest.mark.parametrize("function", [yielding, yielding_later])
async def test_a_returned_generator_is_a_failure(
    function: Callable[..., object], run: Run, threads: ThreadPoolExecutor
) -> None:
    async def handle(payload: object) -> object:
        return function(payload)

    for handler in (Handler(undressed(function)), Handler(handle)):
        with pytest.raises(HandlerUnfinished, match="generator"):
            await handler.call({}, run, threads)


async def test_a_generator_that_its_decorator_goes_through_is_a_handler(
    run: Run, threads: ThreadPoolExecutor
) -> None:
    seen: list[int] = []

    @functools.wraps(yielding)
    def handle(payload: object) -> None:
        seen.extend(yielding(payload))

    await Handler(handle).call({}, run, threads)
    assert seen == [1]


async def test_a_function_in_a_thread_that_lets_a_stop_iteration_out_has_failed(
    run: Run, threads: ThreadPoolExecutor
) -> None:
    def handle(payload: object) -> object:
        return next(iter([]))

    async with asyncio.timeout(60):
        with pytest.raises(RuntimeError, match="StopIteration"):
            await Handler(handle).call([], run, threads)


def nothing() -> None: ...
def three(a: object, b: object, c: object) -> None: ...
def named(payload: object, *, tenant: str) -> None: ...
def open_ended(*payloads: object) -> None: ...
def undecodable(payload: Report | Other) -> None: ...
def unresolved(payload: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("function", [nothing, three, named, open_ended, undecodable, unresolved])
def test_a_function_that_can_never_be_called_is_refused(function: Callable[..., object]) -> None:
    with pytest.raises(InvalidHandler, match=function.__name__) as refused:
        Handler(function)
    assert " at 0x" not in str(refused.value)


def test_further_parameters_may_have_defaults() -> None:
    def handle(payload: Report, run: Run, retries: int = 3, *, quiet: bool = False) -> None: ...

    Handler(handle)
