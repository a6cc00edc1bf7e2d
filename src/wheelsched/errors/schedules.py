"""Schedules that cannot be what their user meant."""

from wheelsched.errors.fields import InvalidField


class ScheduleError(InvalidField):
    """the schedule cannot be used"""


class ScheduleMissing(ScheduleError):
    """a schedule has exactly one of cron, at, every and rrule"""


class ScheduleTooLong(ScheduleError):
    """a schedule expression has at most 255 characters"""


class InvalidCron(ScheduleError):
    """a cron expression has five fields, or six with the seconds first"""


class InvalidInstant(ScheduleError):
    """a time is written as in ISO 8601, such as 2026-03-08T09:30:00 or 2026-03-08T09:30:00Z"""


class InvalidInterval(ScheduleError):
    """an interval is a duration of at least one second, such as '5m' or '1h30m'"""


class InvalidRecurrence(ScheduleError):
    """a recurrence is written as in RFC 5545, such as RRULE:FREQ=DAILY;BYHOUR=9"""


class InvalidExclusion(ScheduleError):
    """an excluded date is written 2026-12-25, a range of dates 2026-12-24/2027-01-02"""


class ScheduleNeverFires(ScheduleError):
    """the schedule is never due"""


class ScheduleInPast(ScheduleError):
    """the only due time of the schedule has passed"""


class EndBeforeStart(ScheduleError):
    """the schedule ends before it starts"""


class JitterTooLong(ScheduleError):
    """the jitter is longer than the shortest time between two runs"""


class UnknownTimezone(ScheduleError):
    """a time zone is named as in the IANA database, such as Europe/London"""


class InvalidDst(ScheduleError):
    """dst.gap is shift or skip, dst.overlap is first, last or both"""
