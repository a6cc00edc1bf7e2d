"""The tenants of an experiment, as an operator makes them.

Invariant: each has a token and a secret that no other has. With its token it may do what tenants
do, and nothing that operators do.
"""

import aiohttp
from msgspec import Struct

NAMES = ("one", "another")
SCOPES = ["read", "write", "work"]
JOB_QUOTA = 10_000_000


class Tenant(Struct, frozen=True, kw_only=True):
    """What a client and a worker of it need to know."""

    tenant_id: str
    token: str
    secret: str


async def make_tenants(url: str) -> list[Tenant]:
    """Makes them over the API, for which every program of this machine is an operator."""
    async with aiohttp.ClientSession(f"{url}/api/v1/", raise_for_status=True) as session:
        return [await _make(session, name) for name in NAMES]


async def _make(session: aiohttp.ClientSession, name: str) -> Tenant:
    made = await _post(session, "tenants", {"name": name, "job_quota": JOB_QUOTA})
    tenant_id = made["tenant_id"]
    granted = await _post(
        session, "tokens", {"name": name, "tenant_id": tenant_id, "scopes": SCOPES}
    )
    return Tenant(tenant_id=tenant_id, token=granted["token"], secret=made["secret"])


async def _post(
    session: aiohttp.ClientSession, path: str, document: dict[str, object]
) -> dict[str, str]:
    async with session.post(path, json=document) as response:
        answer: dict[str, str] = await response.json()
        return answer
