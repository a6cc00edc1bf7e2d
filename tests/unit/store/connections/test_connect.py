"""The search for the primary among the hosts of a URL."""

import pytest

from wheelsched.errors import InvalidDatabaseUrl
from wheelsched.store.connections.connect import Connector
from wheelsched.store.connections.session import Session

SESSION = Session(name="test", command_timeout_ms=1_000)


@pytest.mark.parametrize(
    "url", ["postgresql://one:x,two:y/jobs", "postgresql://one:x/jobs", "nothing"]
)
async def test_an_invalid_url_is_an_error_with_a_name(url: str) -> None:
    with pytest.raises(InvalidDatabaseUrl):
        await Connector(url, 1_000).connect(SESSION)
