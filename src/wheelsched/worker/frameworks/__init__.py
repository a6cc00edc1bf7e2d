"""Adapters of the receiver to aiohttp, ASGI and WSGI."""
