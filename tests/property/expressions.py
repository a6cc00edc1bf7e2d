"""Random cron expressions: half of them likely at three in the morning, when clocks change."""

from random import Random

from tests.property.oracle import MONTHS, WEEKDAYS


def cron(random: Random, *, seconds: bool = False) -> str:
    fields = [
        minute(random),
        hour(random),
        day(random),
        month(random),
        weekday(random),
    ]
    if seconds:
        fields.insert(0, minute(random))
    return " ".join(fields)


def minute(random: Random) -> str:
    return random.choice(
        [
            "*",
            "0",
            "30",
            str(random.randrange(60)),
            f"*/{random.choice([2, 5, 7, 10, 15, 30, 45])}",
            span(random, 0, 59),
            f"{random.randrange(60)},{random.randrange(60)}",
            f"{random.randrange(30)}/{random.randint(1, 20)}",
        ]
    )


def hour(random: Random) -> str:
    return random.choice(
        [
            "*",
            "*/2",
            f"*/{random.randint(1, 12)}",
            str(random.randrange(4)),
            str(random.randrange(24)),
            f"{random.randrange(4)},{random.randrange(24)}",
            f"0-{random.randint(1, 5)}",
            span(random, 0, 23),
        ]
    )


def day(random: Random) -> str:
    return random.choice(
        ["*", "*", "*", "?", "L", f"*/{random.randint(2, 9)}", span(random, 1, 31), "1,15,L"]
    )


def month(random: Random) -> str:
    return random.choice(["*", "*", "*", "*", "3-4,9-11", f"{random.choice(MONTHS)}", "*/3"])


def weekday(random: Random) -> str:
    name = random.choice(WEEKDAYS)
    return random.choice(
        [
            "*",
            "*",
            "*",
            "?",
            "*/2",
            "SUN",
            "0",
            "7",
            "MON-FRI",
            span(random, 0, 7),
            f"{name}#{random.randint(1, 5)}",
            f"{random.randrange(8)}L",
            f"{name},SUN",
        ]
    )


def span(random: Random, low: int, high: int) -> str:
    first, last = sorted(random.sample(range(low, high + 1), 2))
    step = random.choice(["", "", f"/{random.randint(1, 5)}"])
    return f"{first}-{last}{step}"
