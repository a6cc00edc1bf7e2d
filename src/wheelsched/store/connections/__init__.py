"""Connections to Postgres, the statements by name, and failures as errors."""
