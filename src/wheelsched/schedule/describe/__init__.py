"""Describes schedules in English."""
