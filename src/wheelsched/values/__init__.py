"""Values that every layer shares: durations, names, JSON fields and lists of problems."""
