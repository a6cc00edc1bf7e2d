"""Where a world stands in time, and how its shards are set up, before anything is in it."""

from datetime import datetime
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from wheelsched.values.duration import MINUTE, SECOND

REFRESHES_S = (2, 10, 60)
CHANGES = (
    ("America/New_York", "2027-03-14T07:00:00+00:00"),
    ("America/New_York", "2027-11-07T06:00:00+00:00"),
    ("Europe/London", "2027-03-28T01:00:00+00:00"),
    ("Europe/London", "2027-10-31T01:00:00+00:00"),
    ("Australia/Lord_Howe", "2027-04-03T15:00:00+00:00"),  # by half an hour
    ("Australia/Lord_Howe", "2027-10-02T15:30:00+00:00"),
)


class Setting(Struct, frozen=True, kw_only=True):
    """`zone` is where the clocks change soon after the start; without it nobody's do."""

    start_us: int = 1_800_000_000 * SECOND
    zone: str | None = None
    refresh_us: int = MINUTE
    places: int | None = None  # for requests to one target; without it, for as many as there are


PLAIN = Setting()


def draw_setting(seed: int) -> Setting:
    places = Random(f"{seed} places").choice((None, None, 2, 1))
    return replace(draw_roomy_setting(seed), places=places)


def draw_roomy_setting(seed: int) -> Setting:
    """One in which nobody waits for a place."""
    random = Random(f"{seed} setting")
    refresh_us = random.choice(REFRESHES_S) * SECOND
    if random.random() < 0.7:
        return Setting(refresh_us=refresh_us)
    zone, change = random.choice(CHANGES)
    change_us = int(datetime.fromisoformat(change).timestamp()) * SECOND
    start_us = change_us - random.randint(5, 40) * SECOND
    return Setting(start_us=start_us, zone=zone, refresh_us=refresh_us)
