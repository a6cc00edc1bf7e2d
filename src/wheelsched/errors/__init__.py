"""Every exception of wheelsched, by who has to say it.

Invariant: an error is a noun and a `WheelschedError`, and its docstring is its default message.
What a module here defines is exported here: nobody imports the modules one by one.
"""

# ruff: noqa: F403 - what is written once needs no list that repeats it

from wheelsched.errors.base import *
from wheelsched.errors.client import *
from wheelsched.errors.core import *
from wheelsched.errors.dispatch import *
from wheelsched.errors.fields import *
from wheelsched.errors.processes import *
from wheelsched.errors.requests import *
from wheelsched.errors.schedules import *
from wheelsched.errors.store import *
from wheelsched.errors.verdicts import *
from wheelsched.errors.wheel import *
from wheelsched.errors.worker import *
