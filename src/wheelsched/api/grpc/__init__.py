"""The API for workers that pull, by gRPC. Start with `server`."""

from wheelsched.extras import require

require("grpc")
