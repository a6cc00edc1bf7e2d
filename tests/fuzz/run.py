"""Fuzzes one target with atheris: `python -m tests.fuzz.run TARGET [options of libFuzzer]`."""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["wheelsched"], enable_loader_override=False):
    from tests.fuzz.targets import TARGETS, WORDS


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        sys.exit(f"there is no target {name!r}; there are {', '.join(TARGETS)}")
    with tempfile.TemporaryDirectory() as corpus:
        for number, word in enumerate(WORDS):
            Path(corpus, str(number)).write_bytes(word)
        atheris.Setup([sys.argv[0], *sys.argv[2:], corpus], TARGETS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
