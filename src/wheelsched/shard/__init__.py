"""The shard daemon: acquire, load, arm, fire, settle and sweep. Start with `pipeline`."""

from wheelsched.extras import require

require("server")
