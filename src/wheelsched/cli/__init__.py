"""The command line."""

from wheelsched.cli.app import app


def main() -> None:
    """The command `wheelsched`."""
    app(prog_name="wheelsched")
