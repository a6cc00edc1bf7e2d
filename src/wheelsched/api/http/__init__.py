"""HTTP handling of one request, from its headers to its response. Start with `service`."""
