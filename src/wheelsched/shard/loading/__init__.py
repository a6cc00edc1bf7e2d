"""Reads what is due in the coming minutes from the database into the wheel."""
