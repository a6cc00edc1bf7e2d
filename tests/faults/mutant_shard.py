"""`wheelsched shard` with a lease that it trusts forever: what the judge must notice."""

from unittest.mock import patch

from wheelsched.cli import main
from wheelsched.shard.ownership.ownership import Ownership

if __name__ == "__main__":
    with patch.object(Ownership, "is_trusted", True):
        main()
