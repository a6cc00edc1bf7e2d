"""Errors of schedules."""

from wheelsched.errors.fields import InvalidField


class ScheduleError(InvalidField):
    """invalid schedule"""


class ScheduleMissing(ScheduleError):
    """a schedule needs exactly one of: cron, at, every, rrule"""


class ScheduleTooLong(ScheduleError):
    """the schedule exceeds 255 characters"""


class InvalidCron(ScheduleError):
    """invalid cron expression; expected five fields, or six with seconds first"""


class InvalidInstant(ScheduleError):
    """invalid time; expected ISO 8601, e.g. 2026-03-08T09:30:00 or 2026-03-08T09:30:00Z"""


class InvalidInterval(ScheduleError):
    """invalid interval; expected a duration of at least 1 s, e.g. '5m' or '1h30m'"""


class InvalidRecurrence(ScheduleError):
    """invalid recurrence rule; expected RFC 5545, e.g. RRULE:FREQ=DAILY;BYHOUR=9"""


class InvalidExclusion(ScheduleError):
    """invalid exclusion; expected a date or a range, e.g. 2026-12-25 or 2026-12-24/2027-01-02"""


class ScheduleNeverFires(ScheduleError):
    """the schedule has no due time"""


class ScheduleInPast(ScheduleError):
    """the only due time of the schedule is in the past"""


class EndBeforeStart(ScheduleError):
    """the schedule ends before it starts"""


class JitterTooLong(ScheduleError):
    """the jitter exceeds the shortest interval between two runs"""


class UnknownTimezone(ScheduleError):
    """unknown time zone; expected an IANA name, e.g. Europe/London"""


class InvalidDst(ScheduleError):
    """dst.gap must be one of: shift, skip; dst.overlap one of: first, last, both"""
