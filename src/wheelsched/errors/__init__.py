"""Every exception that wheelsched raises, one module per part that raises them.

Invariant: every error is a noun and a `WheelschedError`, and its docstring is its default message.
Import errors from this package, not from its modules.
"""

# ruff: noqa: F403 - the modules define nothing but errors; a list would only repeat them

from wheelsched.errors.base import *
from wheelsched.errors.client import *
from wheelsched.errors.core import *
from wheelsched.errors.dispatch import *
from wheelsched.errors.extras import *
from wheelsched.errors.fields import *
from wheelsched.errors.handler import *
from wheelsched.errors.links import *
from wheelsched.errors.processes import *
from wheelsched.errors.requests import *
from wheelsched.errors.scheduler import *
from wheelsched.errors.schedules import *
from wheelsched.errors.store import *
from wheelsched.errors.wheel import *
from wheelsched.errors.worker import *
