"""Files as trees: YAML 1.2 as JSON knows it.

Invariant: what is read means the same to whoever reads the file by the core schema of YAML 1.2, of
which JSON is a part: `on`, `yes` and `12:30:00` are text, `010` is ten. What JSON could not carry,
and a key that is there twice, is refused with its place.
"""

import math
import re
from collections.abc import Iterator
from typing import Any, Final

import typer
import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from wheelsched.cli.written import read_text

NULL: Final = "tag:yaml.org,2002:null"
BOOL: Final = "tag:yaml.org,2002:bool"
INT: Final = "tag:yaml.org,2002:int"
FLOAT: Final = "tag:yaml.org,2002:float"
STR: Final = "tag:yaml.org,2002:str"
SEQ: Final = "tag:yaml.org,2002:seq"
MAP: Final = "tag:yaml.org,2002:map"
MERGE: Final = "tag:yaml.org,2002:merge"  # of YAML 1.1, and in every file with a common part

DECIMAL: Final = re.compile(r"[-+]?[0-9]+\Z")
OCTAL: Final = re.compile(r"0o[0-7]+\Z")
HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]+\Z")
MAX_DIGITS: Final = 40  # with leading zeros; no integer of 64 bits has more than 20
INTEGERS: Final = range(-(2**63), 2**64)  # those that every part of wheelsched carries

FRACTION: Final = (
    r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
)

RESOLVED: Final = (
    (NULL, r"(?:~|null|Null|NULL|)\Z", ["~", "n", "N", ""]),
    (BOOL, r"(?:true|True|TRUE|false|False|FALSE)\Z", list("tTfF")),
    (INT, r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z", list("-+0123456789")),
    (FLOAT, FRACTION, list("-+.0123456789")),
    (MERGE, r"<<\Z", ["<"]),
)


def read_trees(path: str) -> Iterator[Any]:
    """The documents of a file, as they are written; the parts of those that are lists."""
    try:
        for part in yaml.load_all(read_text(path), Loader):
            if part is not None:
                yield from part if isinstance(part, list) else [part]
    except yaml.YAMLError as error:
        raise typer.BadParameter(f"{path} is no YAML that can be used: {error}") from error
    except RecursionError as error:
        raise typer.BadParameter(f"{path} is nested too deep") from error


class Loader(yaml.SafeLoader):
    """Reads by the core schema."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Here every key still stands where it was written, and nothing is merged yet."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ComposerError(None, None, "a key is text", key.start_mark)
            if key.value in seen:
                raise ComposerError(
                    None, None, f"the key {key.value!r} is there twice", key.start_mark
                )
            seen.add(key.value)
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Keys are text, as in JSON, whatever they look like."""
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep) for key, value in node.value}


def _read_bool(loader: Loader, node: yaml.ScalarNode) -> bool:
    if node.value.lower() not in ("true", "false"):
        raise _unusable(node, "is neither true nor false")
    return bool(node.value.lower() == "true")


def _read_int(loader: Loader, node: yaml.ScalarNode) -> int:
    text = node.value
    if len(text) > MAX_DIGITS:
        raise _unusable(node, "has more than 64 bits; write it as text, in quotes")
    if DECIMAL.match(text):
        number = int(text)
    elif OCTAL.match(text) or HEXADECIMAL.match(text):
        number = int(text, 0)
    else:
        raise _unusable(node, "is no integer")
    if number not in INTEGERS:
        raise _unusable(node, "has more than 64 bits; write it as text, in quotes")
    return number


def _read_float(loader: Loader, node: yaml.ScalarNode) -> float:
    try:
        number = float(node.value)
    except ValueError:  # .inf and .nan are not written so in Python
        number = math.nan
    if not math.isfinite(number):
        raise _unusable(node, "is no number that JSON knows")
    return number


def _unusable(node: yaml.ScalarNode, why: str) -> ConstructorError:
    return ConstructorError(None, None, f"{node.value[:40]!r} {why}", node.start_mark)


# What the class above knows is not known here.
Loader.yaml_implicit_resolvers = {}
Loader.yaml_constructors = {}
for tag, pattern, first in RESOLVED:
    Loader.add_implicit_resolver(tag, re.compile(pattern), first)
for known in (NULL, STR, SEQ, MAP, None):
    Loader.add_constructor(known, yaml.SafeLoader.yaml_constructors[known])
Loader.add_constructor(BOOL, _read_bool)
Loader.add_constructor(INT, _read_int)
Loader.add_constructor(FLOAT, _read_float)
