"""Targets of callbacks: which URLs, addresses and headers are allowed."""
