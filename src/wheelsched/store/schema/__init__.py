"""The schema of the database: migrations, rights, daily tables, retention, settings."""
