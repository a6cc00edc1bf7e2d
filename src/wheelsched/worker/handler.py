"""Handlers: the user's functions, and what their signatures say.

Invariant: a handler that could never be called is refused when it is registered, and a payload
that is not what it takes is refused before it is called.
"""

import asyncio
import contextvars
import inspect
import typing
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final

import msgspec

from wheelsched.errors import InvalidHandler, InvalidPayload
from wheelsched.worker.delivery import Run

_PLACES: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Handler:
    """A function for the runs of a job: `handle(payload)` or `handle(payload, run)`.

    The payload is decoded into the type that it is annotated with. A function that is not async
    runs in a thread.
    """

    def __init__(self, function: Callable[..., object], *, is_long: bool = False) -> None:
        self.is_long = is_long
        self._function = function
        self._is_async = inspect.iscoroutinefunction(inspect.unwrap(function))
        parameters = _positional(function)
        self._takes_run = len(parameters) == 2
        self._decoder = _decoder(function, parameters[0])

    def decode(self, payload: bytes) -> object:
        """The payload as the function takes it, or `InvalidPayload`."""
        try:
            return self._decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidPayload(f"{InvalidPayload.__doc__}: {error}") from error

    async def call(self, payload: object, run: Run, threads: Executor) -> None:
        """Calls the function; whatever it raises comes out."""
        arguments = (payload, run) if self._takes_run else (payload,)
        if self._is_async:
            await typing.cast("Callable[..., Any]", self._function)(*arguments)
            return
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(threads, context.run, self._function, *arguments)


def _positional(function: Callable[..., object]) -> list[inspect.Parameter]:
    """The one or two parameters of a handler; others must have defaults."""
    parameters = list(inspect.signature(function).parameters.values())
    positional = [
        each for each in parameters if each.kind in _PLACES and each.default is each.empty
    ]
    wanted = [
        each
        for each in parameters
        if each.kind is inspect.Parameter.KEYWORD_ONLY and each.default is each.empty
    ]
    if wanted or not 1 <= len(positional) <= 2:
        raise InvalidHandler(f"{function!r} cannot be called: {InvalidHandler.__doc__}")
    return positional


def _decoder(
    function: Callable[..., object], parameter: inspect.Parameter
) -> msgspec.json.Decoder[Any]:
    if parameter.annotation is parameter.empty:
        return msgspec.json.Decoder()
    try:
        payload_type = typing.get_type_hints(function)[parameter.name]
        return msgspec.json.Decoder(payload_type)
    except (NameError, TypeError) as error:
        raise InvalidHandler(
            f"the payload of {function!r} has a type that nothing can be decoded into: {error}"
        ) from error
