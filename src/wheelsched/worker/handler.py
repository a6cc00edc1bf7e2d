"""Handlers: the user's functions, and what their signatures say.

Invariant: a handler that could never be called is refused when it is registered, and a payload
that is not what it takes is refused before it is called. A call that returns has run: whatever is
awaitable is awaited, and what nobody would go on with is an error.
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

    The payload is decoded into the type that it is annotated with. A function that is not async
    runs in a thread; what it returns to be awaited is awaited on the loop.
    """

    def __init__(self, function: Callable[..., object], *, is_long: bool = False) -> None:
        self.is_long = is_long
        self._function = function
        self._is_async = _is_any(inspect.iscoroutinefunction, inspect.unwrap(function))
        _refuse_generator(function)
        parameters = _positional(function)
        self._takes_run = len(parameters) == 2
        self._decode = _decoder(function, parameters[0])

    def decode(self, payload: bytes) -> object:
        """The payload as the function takes it, or `InvalidPayload`."""
        return self._decode(payload)

    async def call(self, payload: object, run: Run, threads: Executor) -> None:
        """Calls the function; whatever it raises comes out."""
        arguments = (payload, run) if self._takes_run else (payload,)
        if self._is_async:
            returned = self._function(*arguments)
        else:
            context = contextvars.copy_context()
            loop = asyncio.get_running_loop()
            call = functools.partial(context.run, _call_in_thread, self._function, *arguments)
            returned = await loop.run_in_executor(threads, call)
        while inspect.isawaitable(returned):
            returned = await returned
        if inspect.isgenerator(returned) or inspect.isasyncgen(returned):
            raise HandlerUnfinished


def _call_in_thread(function: Callable[..., object], *arguments: object) -> object:
    try:
        return function(*arguments)
    except StopIteration as error:
        # A future refuses it, and would stay without a result for ever.
        raise RuntimeError(f"the handler let a StopIteration out: {error}") from error
    except KeyboardInterrupt as error:
        # On the loop it would end the worker; Ctrl-C goes to the main thread, and never to this.
        raise RuntimeError(f"the handler raised KeyboardInterrupt: {error}") from error


def _is_any(is_kind: Callable[[Any], bool], function: Callable[..., object]) -> bool:
    """Whether a function, or what an object does when it is called, is of a kind."""
    return is_kind(function) or is_kind(getattr(function, "__call__", None))  # noqa: B004 - its kind


def _refuse_generator(function: Callable[..., object]) -> None:
    """One that is wrapped may be gone through by what wraps it; one that is not, by nobody."""
    if any(_is_any(kind, function) for kind in _GENERATORS):
        raise InvalidHandler(
            f"{function!r} is a generator: it has a `yield`, and calling it would run nothing; "
            "write a function that returns"
        )


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


def _decoder(function: Callable[..., object], parameter: inspect.Parameter) -> Decode:
    if parameter.annotation is parameter.empty:
        return make_decoder(Any)
    try:
        hints = typing.get_type_hints(_annotated(function), include_extras=True)
        return make_decoder(hints[parameter.name])
    except (NameError, TypeError) as error:
        raise InvalidHandler(
            f"the payload of {function!r} has a type that JSON cannot be decoded into: "
            f"{error}; {SUPPORTED}"
        ) from error


def _annotated(function: Callable[..., object]) -> Callable[..., object]:
    """What bears the annotations: of a partial its function, of an object its `__call__`."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = function.func
    is_object = not (inspect.isroutine(function) or inspect.isclass(function))
    return type(function).__call__ if is_object else function
