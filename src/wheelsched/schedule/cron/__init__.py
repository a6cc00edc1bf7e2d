"""Parses cron expressions and matches them against the wall clock."""
