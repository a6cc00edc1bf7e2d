"""The calls of the API, a module per resource."""
