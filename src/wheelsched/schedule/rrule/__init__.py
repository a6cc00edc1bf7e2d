"""Parses recurrence rules (RFC 5545) and matches them against the wall clock."""
