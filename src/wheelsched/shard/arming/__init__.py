"""Claims runs ahead of their time, and builds their requests."""
