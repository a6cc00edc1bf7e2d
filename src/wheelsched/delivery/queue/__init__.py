"""Hands runs to workers that pull."""
