"""Delivers callbacks to workers over HTTP. Start with `dispatcher`."""
