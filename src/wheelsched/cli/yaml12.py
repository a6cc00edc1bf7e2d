"""Reads YAML 1.2 files as JSON values.

Invariant: a file means what the core schema of YAML 1.2 says, of which JSON is a subset: `on`,
`yes` and `12:30:00` are strings, `010` is ten. Values that JSON cannot represent, and duplicate
keys, are rejected with their position. Memory and time stay proportional to the file: aliases may
expand to at most `MAX_ALIASED` characters and nodes, and nesting is limited to `MAX_DEPTH`.
"""

import math
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import typer
import yaml
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from wheelsched.cli.option_parsers import read_text
from wheelsched.wire import strict

NULL: Final = "tag:yaml.org,2002:null"
BOOL: Final = "tag:yaml.org,2002:bool"
INT: Final = "tag:yaml.org,2002:int"
FLOAT: Final = "tag:yaml.org,2002:float"
STR: Final = "tag:yaml.org,2002:str"
SEQ: Final = "tag:yaml.org,2002:seq"
MAP: Final = "tag:yaml.org,2002:map"
MERGE: Final = "tag:yaml.org,2002:merge"  # from YAML 1.1, but widely used

DECIMAL: Final = re.compile(r"[-+]?[0-9]+\Z")
OCTAL: Final = re.compile(r"0o[0-7]+\Z")
HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]+\Z")
MAX_DIGITS: Final = 40  # including leading zeros; a 64-bit integer has at most 20
INTEGERS: Final = range(-(2**63), 2**64)  # what all parts of wheelsched can represent

MAX_ALIASED: Final = 4_000_000  # e.g. 10,000 jobs that share 400 characters
MAX_DEPTH: Final = strict.MAX_DEPTH + 3  # a job, in a list, under a key
TOO_LONG: Final = f"the aliases of this file expand to more than {MAX_ALIASED:,} characters"
TOO_DEEP: Final = f"nested deeper than {MAX_DEPTH} levels"

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


class LineMapping(dict[str, Any]):
    """A mapping that knows its line in the file, counted from 1."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line
        self.lines: dict[str, int] = {}  # line of each key


def line_of(tree: Any, pointer: str) -> int | None:
    """The line of the value at a JSON pointer, or of the mapping that lacks it."""
    line = None
    for step in pointer.split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(tree, LineMapping):
            line = tree.lines.get(name, tree.line)
            tree = tree.get(name, None if step else tree)
    return line


def read_trees(path: str) -> Iterator[Any]:
    """The jobs of a file: documents, items of lists, and items of lists under `jobs`."""
    try:
        for part in yaml.load_all(read_text(path), Loader):
            if part is not None:
                yield from _parts(part)
    except yaml.YAMLError as error:
        raise typer.BadParameter(f"cannot parse {path}: {error}") from error


def _parts(part: Any) -> list[Any]:
    if isinstance(part, LineMapping) and isinstance(part.get("jobs"), list):
        for name in part:
            if name != "jobs":
                raise yaml.YAMLError(
                    f"unknown field {name!r} next to jobs, line {part.lines[name]}"
                )
        part = part["jobs"]
    return part if isinstance(part, list) else [part]


class Extent(NamedTuple):
    """The size of a node with all its aliases expanded."""

    size: int  # nodes and characters
    height: int  # levels, including this one


class Loader(yaml.SafeLoader):
    """Loads by the core schema, and limits alias expansion before anything is expanded."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._extents: dict[yaml.Node, Extent] = {}
        self._aliased = 0
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        """A node, or the node that an alias refers to."""
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _composer_error(TOO_DEEP, event)
        node: yaml.Node | None = super().compose_node(parent, index)
        if node is not None:
            extent = self._extent_of(node, event)
            if self._depth - 1 + extent.height > MAX_DEPTH:
                raise _composer_error(TOO_DEEP, event)
        self._depth -= 1
        return node

    def _extent_of(self, node: yaml.Node, event: yaml.Event) -> Extent:
        if not isinstance(event, yaml.AliasEvent):
            self._extents[node] = extent = self._measure(node)
            return extent
        if node not in self._extents:
            raise _composer_error(f"{event.anchor!r} contains itself", event)
        extent = self._extents[node]
        self._aliased += extent.size
        if self._aliased > MAX_ALIASED:
            raise _composer_error(TOO_LONG, event)
        return extent

    def _measure(self, node: yaml.Node) -> Extent:
        """The extent of a node, from those of its children."""
        if isinstance(node, yaml.ScalarNode):
            return Extent(1 + len(node.value), 1)
        parts = node.value
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in parts for part in pair]
        below = [self._extents[part] for part in parts]
        return Extent(
            1 + sum(extent.size for extent in below),
            1 + max((extent.height for extent in below), default=0),
        )

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Checks the keys here, where they have positions and merge keys are not expanded yet."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _composer_error("keys must be scalars", key)
            if key.value in seen:
                raise _composer_error(f"duplicate key {key.value!r}", key)
            seen.add(key.value)
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Keys are strings, as in JSON, whatever they look like."""
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep) for key, value in node.value}

    def construct_line_mapping(self, node: yaml.MappingNode) -> Iterator[LineMapping]:
        """In two steps, like all collections, because its children may refer to it."""
        mapping = LineMapping(node.start_mark.line + 1)
        yield mapping
        mapping |= self.construct_mapping(node)
        mapping.lines = {key.value: key.start_mark.line + 1 for key, _ in node.value}


def _read_bool(loader: Loader, node: yaml.ScalarNode) -> bool:
    if node.value.lower() not in ("true", "false"):
        raise _constructor_error(node, "is not a boolean; expected true or false")
    return bool(node.value.lower() == "true")


def _read_int(loader: Loader, node: yaml.ScalarNode) -> int:
    text = node.value
    if len(text) > MAX_DIGITS:
        raise _constructor_error(node, "exceeds 64 bits; write it as a string, in quotes")
    if DECIMAL.match(text):
        number = int(text)
    elif OCTAL.match(text) or HEXADECIMAL.match(text):
        number = int(text, 0)
    else:
        raise _constructor_error(node, "is not an integer")
    if number not in INTEGERS:
        raise _constructor_error(node, "exceeds 64 bits; write it as a string, in quotes")
    return number


def _read_float(loader: Loader, node: yaml.ScalarNode) -> float:
    try:
        number = float(node.value)
    except ValueError:  # Python does not parse .inf and .nan
        number = math.nan
    if not math.isfinite(number):
        raise _constructor_error(node, "is not a valid JSON number")
    return number


def _composer_error(why: str, place: Any) -> ComposerError:
    return ComposerError(None, None, why, place.start_mark)


def _constructor_error(node: yaml.ScalarNode, why: str) -> ConstructorError:
    return ConstructorError(None, None, f"{node.value[:40]!r} {why}", node.start_mark)


# Only the core schema: discard what SafeLoader registers.
Loader.yaml_implicit_resolvers = {}
Loader.yaml_constructors = {}
for tag, pattern, first in RESOLVED:
    Loader.add_implicit_resolver(tag, re.compile(pattern), first)
for known in (NULL, STR, SEQ, None):
    Loader.add_constructor(known, yaml.SafeLoader.yaml_constructors[known])
Loader.add_constructor(MAP, Loader.construct_line_mapping)
Loader.add_constructor(BOOL, _read_bool)
Loader.add_constructor(INT, _read_int)
Loader.add_constructor(FLOAT, _read_float)
