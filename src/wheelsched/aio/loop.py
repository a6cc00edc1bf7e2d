"""Who may use an AsyncWheel: only the loop that it was made on.

Invariant: nothing behind this check is ever entered by two threads at once.
"""

import asyncio

from wheelsched.errors import WrongLoop


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Raise WrongLoop unless `loop` is the one that is running here."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        raise WrongLoop from None
    if running is not loop:
        raise WrongLoop
