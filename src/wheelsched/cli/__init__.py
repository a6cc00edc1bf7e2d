"""The command line."""

import sys

from wheelsched.extras import require

require("server")


def main() -> None:
    """Entry point of the command `wheelsched`."""
    from wheelsched.daemon.parent import fork_under_parent, needs_parent  # noqa: PLC0415 - as below

    if needs_parent(sys.argv[1:]):
        fork_under_parent()
    from wheelsched.cli.app import app  # noqa: PLC0415 - only once the extra is installed

    app(prog_name="wheelsched")
