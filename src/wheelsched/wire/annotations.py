"""Annotations that describe wire fields in the OpenAPI document.

Invariant: annotations only document. Validation is done by the core, whose errors are clearer than
those of a schema.
"""

from typing import Any, Final

from msgspec import Meta

# Omitted fields are None in the structs, so the effective default is kept under this key until the
# OpenAPI document is assembled.
DEFAULT: Final = "x-default"
_NO_DEFAULT: Final = object()


def about(description: str, *, default: Any = _NO_DEFAULT, example: Any = _NO_DEFAULT) -> Meta:
    """Describes a field; its default also serves as its example."""
    extra = {} if default is _NO_DEFAULT else {DEFAULT: default}
    if example is _NO_DEFAULT:
        example = default
    examples = None if example is _NO_DEFAULT else [example]
    return Meta(description=description, examples=examples, extra_json_schema=extra)


def choice(*words: str) -> Meta:
    """The allowed values of a field."""
    return Meta(extra_json_schema={"enum": list(map(str, words))})


def integer(least: int, most: int) -> Meta:
    """The range of an integer field."""
    return Meta(extra_json_schema={"minimum": least, "maximum": most})


def with_defaults(schema: Any) -> Any:
    """The schema with each default under the key `default`."""
    match schema:
        case dict():
            filled = {name: with_defaults(value) for name, value in schema.items()}
            if DEFAULT in filled:
                filled["default"] = filled.pop(DEFAULT)
            return filled
        case list():
            return [with_defaults(each) for each in schema]
        case _:
            return schema
