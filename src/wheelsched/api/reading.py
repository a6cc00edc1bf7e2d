"""A request becomes a call: its body and its parameters, within their limits and with their types.

Invariant: nothing is read beyond the limit of its operation, and no wait for a slow sender is
longer than `body_timeout_ms`.
"""

import asyncio
from datetime import datetime
from functools import cache
from typing import Any, Final

import msgspec
from aiohttp import hdrs, web
from msgspec import Struct

from wheelsched.api.operation import NoBody, Operation
from wheelsched.config import ApiConfig
from wheelsched.core.fields import escaped
from wheelsched.errors import (
    BodyTooLarge,
    ContentCompressed,
    ContentTypeUnknown,
    HeadersTooLarge,
    InvalidInstant,
    InvalidParameter,
    RequestUnreadable,
)
from wheelsched.wire.instant import read_us
from wheelsched.wire.mismatches import field_error
from wheelsched.wire.strict import read_strictly

CHUNK_BYTES: Final = 64 << 10


def check_headers(request: web.BaseRequest, config: ApiConfig) -> None:
    """Refuse a head that is larger than the API reads, or a body that is compressed."""
    size = sum(len(name) + len(value) for name, value in request.raw_headers)
    if size > config.max_header_bytes:
        raise HeadersTooLarge(
            f"the headers have {size:,} bytes; at most {config.max_header_bytes:,} are read"
        )
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity").lower() != "identity":
        raise ContentCompressed


async def read_body(request: web.BaseRequest, operation: Operation, config: ApiConfig) -> bytes:
    """The body of a request, or the reason why it is not read."""
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
    """The typed body of a call. Nothing that was written is ignored: not even of a call that has
    no body to read."""
    if operation.body is bytes:
        return body
    if not body and operation.body is None:
        return None
    if not body and (operation.body is None or operation.is_body_optional):
        body = b"{}"
    return read_strictly(body, _decoder(NoBody if operation.body is None else operation.body))


def read_query(request: web.BaseRequest, query: type[Struct]) -> Any:
    """The typed parameters of a call."""
    written: dict[str, str | list[str]] = {}
    lists = _lists_of(query)
    for name in request.query:
        values = request.query.getall(name)
        if any("\x00" in value for value in values):
            raise InvalidParameter("a parameter holds no NUL", pointer=f"/{escaped(name[:100])}")
        if len(values) > 1 and name not in lists:
            raise InvalidParameter(
                "this parameter is there twice", pointer=f"/{escaped(name[:100])}"
            )
        written[name] = values if name in lists else values[0]
    try:
        return msgspec.convert(written, query, strict=False)
    except msgspec.ValidationError as error:
        problem = field_error(str(error), written)
        raise InvalidParameter(str(problem), pointer=problem.pointer) from None


def read_query_us(written: datetime, name: str) -> int:
    """The microseconds of an instant among the parameters."""
    try:
        return read_us(written, pointer=f"/{name}")
    except InvalidInstant as error:
        raise InvalidParameter(str(error), pointer=error.pointer) from None


def _check_content_type(request: web.BaseRequest, operation: Operation) -> None:
    if request.content_type not in operation.content_types:
        raise ContentTypeUnknown(
            f"this call reads {' or '.join(operation.content_types)}, not {request.content_type}"
        )
    if (request.charset or "utf-8").lower() not in {"utf-8", "utf8"}:
        raise ContentTypeUnknown("JSON is written in UTF-8")


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body is larger than the {limit:,} bytes that this call reads")


@cache
def _lists_of(query: type[Struct]) -> frozenset[str]:
    """The parameters that may be there more than once."""
    fields = msgspec.structs.fields(query)
    return frozenset(field.encode_name for field in fields if field.default == ())


@cache
def _decoder(body: type) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(body)
