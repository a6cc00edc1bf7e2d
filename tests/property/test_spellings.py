"""Two spellings of the same times are one schedule, at clock changes too.

A failure names the seed, the zone and both expressions: they are enough to repeat it.
"""

import os
from itertools import islice
from random import Random

from tests.property import expressions
from tests.property.oracle import Cron, changes_of_2020s
from tests.property.test_second_opinions import ours

from wheelsched.errors import ScheduleNeverFires

SEED = int(os.environ.get("WHEELSCHED_SEED", "20260308"))


def listed(text: str) -> str:
    """The same expression with every minute and hour written out."""
    cron = Cron(text)
    minutes, hours = (",".join(map(str, sorted(each))) for each in (cron.minutes, cron.hours))
    return " ".join([minutes, hours, *text.split()[2:]])


def test_spelling_does_not_matter_at_a_clock_change() -> None:
    random = Random(SEED)
    zones = changes_of_2020s()
    compared = 0
    for _ in range(1_500):
        text = expressions.cron(random)
        spelt = listed(text)
        if len(spelt) > 255:
            continue
        zone = random.choice(list(zones))
        after_s = random.choice(zones[zone]).utc_s - random.randrange(6 * 3600)
        try:
            expected = list(islice(ours(text, zone, after_s), 20))
        except ScheduleNeverFires:
            continue
        found = list(islice(ours(spelt, zone, after_s), 20))
        assert found == expected, f"seed {SEED}: {text!r} and {spelt!r} in {zone} after {after_s}"
        compared += 1
    assert compared > 1_000
