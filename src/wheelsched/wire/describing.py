"""How fields of the wire are described in the OpenAPI document.

Invariant: what is said here documents a field and decides nothing: the core judges the values, with
better errors than a schema could give.
"""

from typing import Any, Final

from msgspec import Meta

# A field that is left out is None here; what that means stands under this key, until the document
# is put together.
DEFAULT: Final = "x-default"
_NO_DEFAULT: Final = object()


def about(description: str, *, default: Any = _NO_DEFAULT, example: Any = _NO_DEFAULT) -> Meta:
    """What a field is for; its default is an example too."""
    extra = {} if default is _NO_DEFAULT else {DEFAULT: default}
    if example is _NO_DEFAULT:
        example = default
    examples = None if example is _NO_DEFAULT else [example]
    return Meta(description=description, examples=examples, extra_json_schema=extra)


def choice(*words: str) -> Meta:
    """The words that a field may hold."""
    return Meta(extra_json_schema={"enum": list(map(str, words))})


def integer(least: int, most: int) -> Meta:
    """The bounds of a number."""
    return Meta(extra_json_schema={"minimum": least, "maximum": most})


def with_defaults(schema: Any) -> Any:
    """A schema in which each default is what it means to leave the field out."""
    match schema:
        case dict():
            written = {name: with_defaults(value) for name, value in schema.items()}
            if DEFAULT in written:
                written["default"] = written.pop(DEFAULT)
            return written
        case list():
            return [with_defaults(each) for each in schema]
        case _:
            return schema
