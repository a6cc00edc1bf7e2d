"""Transports that deliver runs to workers; each implements `ports.Dispatcher`."""

from wheelsched.extras import require

require("server")
