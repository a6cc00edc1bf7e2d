"""Callbacks to workers over HTTP. `http.py` reads first."""
