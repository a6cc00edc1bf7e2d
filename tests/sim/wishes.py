"""What the clients of a simulation may want of a job, drawn by the luck of whoever wants it."""

from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

from tests.checker.records import Definition, Schedule
from tests.sim.workers import TEMPERS

SECOND_US = 1_000_000
ZONES = ("UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")
SECONDS = ("*/2", "*/3", "*/5", "*/7", "*/10", "*/15", "1,4,9,33", "*", "0", "30")
MINUTES = ("*", "*/30", "0", "0-1", "29,59", "59,0", "30,31", "45")
HOURS = ("*", "*/2", "0-3", "1", "2", "1-2", "0,3")


def draw_definition(
    random: Random, job_id: UUID, mark: int, now_us: int, zone: str | None
) -> Definition:
    temper = random.choice(TEMPERS)
    return Definition(
        schedule=draw_schedule(random, now_us, zone),
        url=f"http://{temper}-{job_id.hex[:8]}.example/hook",
        mark=mark,
        overlap=random.choice(("skip", "skip", "queue", "allow", "cancel")),
        misfire=random.choice(("once", "all", "skip")),
        grace_us=random.choice((1, 5, 60)) * SECOND_US,
        max_missed=random.choice((2, 100)),
        max_attempts=random.choice((1, 3, 4)),
        timeout_us=random.choice((3, 5, 10)) * SECOND_US,
    )


def draw_schedule(random: Random, now_us: int, zone: str | None) -> Schedule:
    """`zone` is where the clocks change these days, if they do: there hours count too."""
    if zone is not None and random.random() < 0.4:
        fields = (random.choice(SECONDS), random.choice(MINUTES), random.choice(HOURS))
        return Schedule(kind="cron", cron=f"{' '.join(fields)} * * *", timezone=zone)
    jitter_us = random.choice((0, 0, 0, 0, 500_000, 1_500_000))
    match random.randint(0, 5):
        case 0 | 1 | 2:
            elsewhere = random.choice(ZONES)
            second = random.choice(SECONDS)
            return Schedule(
                kind="cron",
                cron=f"{second} * * * * *",
                timezone=elsewhere,
                jitter_us=0 if second == "*" else jitter_us,
            )
        case 3:
            every_us = random.choice((1_500, 2_000, 4_250, 13_000)) * 1_000
            anchor_us = now_us - now_us % 1_000
            return Schedule(
                kind="every", every_us=every_us, anchor_us=anchor_us, jitter_us=jitter_us
            )
        case _:
            at_us = now_us - now_us % 1_000 + random.randint(100, 80_000) * 1_000
            return Schedule(kind="at", at_us=at_us)


def written(schedule: Schedule) -> str:
    """As its user writes it; an interval is without its anchor."""
    match schedule.kind:
        case "cron":
            return schedule.cron
        case "every":
            return f"every {schedule.every_us // 1_000}ms"
        case "at":
            return written_instant(schedule.at_us)


def written_instant(at_us: int) -> str:
    instant = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=at_us)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def document_of(name: str, tenant_id: UUID, definition: Definition) -> dict[str, object]:
    """The document of a job."""
    schedule = definition.schedule
    return {
        "name": name,
        "schedule": expression_of(schedule),
        "timezone": schedule.timezone,
        "target": {"url": definition.url},
        "payload": {"mark": definition.mark, "tenant": str(tenant_id)},
        "overlap": {"policy": definition.overlap},
        "misfire": {
            "policy": definition.misfire,
            "grace": f"{definition.grace_us // 1_000}ms",
            "max_missed": definition.max_missed,
        },
        "retry": {"max_attempts": definition.max_attempts, "max": "4s"},
        "timeout": f"{definition.timeout_us // 1_000}ms",
        "jitter": f"{schedule.jitter_us // 1_000}ms",
    }


def expression_of(schedule: Schedule) -> object:
    """As a document has it; an interval is with its anchor."""
    if schedule.kind != "every":
        return written(schedule)
    start = written_instant(schedule.anchor_us)
    return {"every": f"{schedule.every_us // 1_000}ms", "start": start}
