"""The REST API: the ports of the store, behind HTTP."""
