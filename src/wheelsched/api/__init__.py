"""The REST API: HTTP in front of the store's ports."""

from wheelsched.extras import require

require("server")
