"""Wraps the user's handler functions according to their signatures.

Invariant: registration refuses a function that cannot be called as a handler. A payload of the
wrong type is refused before the call. When a call returns, the handler has run to its end:
awaitables are awaited, and a returned generator is an error.
"""

import asyncio
import contextvars
import functools
import inspect
import typing
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final

from wheelsched.errors import HandlerUnfinished, InvalidHandler
from wheelsched.worker.delivery import Run
from wheelsched.worker.payload import SUPPORTED, Decode, make_decoder

_GENERATORS: Final = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
_PLACES: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Handler:
    """A function for the runs of a job: `handle(payload)` or `handle(payload, run)`.

    The payload is decoded into its annotated type. A function that is not async runs in a thread;
    if it returns an awaitable, that is awaited on the loop. A function that `needs_no_payload` may
    be `handle()` or `handle(run)`, too, but not `handle(payload)`.
    """

    def __init__(
        self,
        function: Callable[..., object],
        *,
        is_long: bool = False,
        needs_no_payload: bool = False,
    ) -> None:
        self.is_long = is_long
        self._function = function
        self.is_async = _is_any(inspect.iscoroutinefunction, inspect.unwrap(function))
        _refuse_generator(function)
        parameters = _positional(function, 0 if needs_no_payload else 1)
        self._takes_payload = len(parameters) == 2 or not needs_no_payload
        self.takes_run = len(parameters) > self._takes_payload
        self._decode = (
            _decoder(function, parameters[0]) if self._takes_payload else make_decoder(Any)
        )

    def decode(self, payload: bytes) -> object:
        """Decode the payload into the type of the function, or raise `InvalidPayload`."""
        return self._decode(payload)

    async def call(self, payload: object, run: Run | None, threads: Executor) -> None:
        """Call the function. Its exceptions propagate. The run is needed if it `takes_run`."""
        arguments: tuple[object, ...] = (payload, run) if self.takes_run else (payload,)
        if not self._takes_payload:
            arguments = arguments[1:]
        if self.is_async:
            returned = self._function(*arguments)
        else:
            context = contextvars.copy_context()
            loop = asyncio.get_running_loop()
            call = functools.partial(context.run, _call_in_thread, self._function, *arguments)
            returned = await loop.run_in_executor(threads, call)
        while returned is not None and inspect.isawaitable(returned):
            returned = await returned
        if returned is None:
            return
        if inspect.isgenerator(returned) or inspect.isasyncgen(returned):
            raise HandlerUnfinished


def _call_in_thread(function: Callable[..., object], *arguments: object) -> object:
    try:
        return function(*arguments)
    except StopIteration as error:
        # A future refuses StopIteration, and would never complete.
        raise RuntimeError(f"the handler raised StopIteration: {error}") from error
    except KeyboardInterrupt as error:
        # Ctrl-C goes to the main thread. On the loop this exception would end the worker.
        raise RuntimeError(f"the handler raised KeyboardInterrupt: {error}") from error


def _is_any(is_kind: Callable[[Any], bool], function: Callable[..., object]) -> bool:
    """Whether a function, or the `__call__` of an object, is of a kind."""
    return is_kind(function) or is_kind(getattr(function, "__call__", None))  # noqa: B004 - its kind


def _refuse_generator(function: Callable[..., object]) -> None:
    """Refuse a generator function. A wrapped one is allowed: its wrapper may iterate over it."""
    if any(_is_any(kind, function) for kind in _GENERATORS):
        raise InvalidHandler(
            f"{_name_of(function)} is a generator function, so a call would not run it; "
            "write a function without `yield`"
        )


def _positional(function: Callable[..., object], least: int) -> list[inspect.Parameter]:
    """The parameters of a handler, at most two. Others must have defaults."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:  # not callable, or written in C
        raise InvalidHandler(
            f"{_name_of(function)} cannot be called as a handler: {error}"
        ) from error
    positional = [
        each for each in parameters if each.kind in _PLACES and each.default is each.empty
    ]
    wanted = [
        each
        for each in parameters
        if each.kind is inspect.Parameter.KEYWORD_ONLY and each.default is each.empty
    ]
    if wanted or not least <= len(positional) <= 2:
        right = InvalidHandler.__doc__ if least else "expected (), (run) or (payload, run)"
        raise InvalidHandler(f"{_name_of(function)} cannot be called: {right}")
    return positional


def _decoder(function: Callable[..., object], parameter: inspect.Parameter) -> Decode:
    if parameter.annotation is parameter.empty:
        return make_decoder(Any)
    try:
        hints = typing.get_type_hints(_annotated(function), include_extras=True)
        return make_decoder(hints[parameter.name])
    except (NameError, TypeError) as error:
        raise InvalidHandler(
            f"the payload of {_name_of(function)} has a type that cannot be decoded from JSON: "
            f"{error}; {SUPPORTED}"
        ) from error


def _name_of(function: Callable[..., object]) -> str:
    return getattr(function, "__qualname__", repr(function))


def _annotated(function: Callable[..., object]) -> Callable[..., object]:
    """The annotated function: of a partial its function, of an object its `__call__`."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = function.func
    is_object = not (inspect.isroutine(function) or inspect.isclass(function))
    return type(function).__call__ if is_object else function
