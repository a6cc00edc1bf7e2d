"""Sends armed runs when they are due."""
