"""Parses a request: headers, body and query parameters, within limits and with types.

Invariant: no more bytes are read than the operation's limit, and a slow sender is cut off after
`body_timeout_ms`.
"""

import asyncio
from datetime import datetime
from functools import cache
from typing import Any, Final

import msgspec
from aiohttp import hdrs, web
from msgspec import Struct

from wheelsched.api.http.operation import NoBody, Operation
from wheelsched.config import ApiConfig
from wheelsched.errors import (
    BodyTooLarge,
    ContentCompressed,
    ContentTypeUnknown,
    HeadersTooLarge,
    InvalidInstant,
    InvalidParameter,
    RequestUnreadable,
)
from wheelsched.values.fields import escape_pointer
from wheelsched.wire.instant import read_us
from wheelsched.wire.mismatches import field_error
from wheelsched.wire.strict import read_strictly

CHUNK_BYTES: Final = 64 << 10


def check_headers(request: web.BaseRequest, config: ApiConfig) -> None:
    """Rejects headers that are too large, and compressed bodies."""
    size = sum(len(name) + len(value) for name, value in request.raw_headers)
    if size > config.max_header_bytes:
        raise HeadersTooLarge(
            f"the headers have {size:,} bytes; at most {config.max_header_bytes:,} are allowed"
        )
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
        raise ContentCompressed


async def read_body(request: web.BaseRequest, operation: Operation, config: ApiConfig) -> bytes:
    """The body of a request, within its limits."""
    if not request.can_read_body:
        return b""
    limit = operation.max_body_bytes
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    body = bytearray()
    try:
        async with asyncio.timeout(config.body_timeout_ms / 1_000):
            async for chunk in request.content.iter_chunked(CHUNK_BYTES):
                body += chunk
                if len(body) > limit:
                    raise _too_large(limit)
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    except web.RequestPayloadError:
        raise RequestUnreadable from None
    if body:
        _check_content_type(request, operation)
    return bytes(body)


def decode_body(body: bytes, operation: Operation) -> Any:
    """The typed body of a request. An operation without a body rejects one with fields."""
    if operation.body is bytes:
        return body
    if not body and operation.body is None:
        return None
    if not body and (operation.body is None or operation.is_body_optional):
        body = b"{}"
    return read_strictly(body, _decoder(NoBody if operation.body is None else operation.body))


def read_query(request: web.BaseRequest, query: type[Struct]) -> Any:
    """The typed query parameters of a request."""
    parameters: dict[str, str | list[str]] = {}
    lists = _lists_of(query)
    for name in request.query:
        values = request.query.getall(name)
        if any("\x00" in value for value in values):
            raise InvalidParameter(
                "query parameters must not contain NUL", pointer=f"/{escape_pointer(name[:100])}"
            )
        if len(values) > 1 and name not in lists:
            raise InvalidParameter(
                "duplicate query parameter", pointer=f"/{escape_pointer(name[:100])}"
            )
        parameters[name] = values if name in lists else values[0]
    try:
        return msgspec.convert(parameters, query, strict=False)
    except msgspec.ValidationError as error:
        problem = field_error(str(error), parameters)
        raise InvalidParameter(str(problem), pointer=problem.pointer) from None


def read_query_us(instant: datetime, name: str) -> int:
    """A query parameter that is an instant, in microseconds."""
    try:
        return read_us(instant, pointer=f"/{name}")
    except InvalidInstant as error:
        raise InvalidParameter(str(error), pointer=error.pointer) from None


def _check_content_type(request: web.BaseRequest, operation: Operation) -> None:
    if request.content_type not in operation.content_types:
        raise ContentTypeUnknown(
            f"expected {' or '.join(operation.content_types)}, got {request.content_type}"
        )
    if (request.charset or "utf-8").lower() not in {"utf-8", "utf8"}:
        raise ContentTypeUnknown("JSON must be encoded in UTF-8")


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body exceeds the limit of {limit:,} bytes")


@cache
def _lists_of(query: type[Struct]) -> frozenset[str]:
    """The parameters that may be repeated."""
    fields = msgspec.structs.fields(query)
    return frozenset(field.encode_name for field in fields if field.default == ())


@cache
def _decoder(body: type) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(body)
