"""The command `wheelsched`, and `python -m wheelsched`."""

import sys
from importlib import import_module

from wheelsched.errors import MissingExtra


def main() -> None:
    """Runs the command line, or says which extra it needs."""
    try:
        cli = import_module("wheelsched.cli")
    except MissingExtra as error:
        sys.exit(f"wheelsched: {error}")
    cli.main()


if __name__ == "__main__":
    main()
