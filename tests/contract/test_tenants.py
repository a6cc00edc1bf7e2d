"""Tenants, tokens and quotas, on memory and on Postgres."""

import asyncio
from uuid import uuid4

import pytest
from msgspec.structs import replace
from tests.contract.conftest import ALL, World

from wheelsched.errors import (
    QuotaExceeded,
    TenantChanged,
    TenantNameTaken,
    TenantNotFound,
    TokenNotFound,
)
from wheelsched.ports import Caller, JobFilter, Registration, Token


def token(world: World, digest: bytes, **changes: object) -> Token:
    fields: dict[str, object] = {
        "digest": digest,
        "tenant_id": world.caller.tenant_id,
        "name": "deploy",
        "scopes": ("read", "write"),
        "created_at_us": world.now_us,
    }
    return Token(**(fields | changes))  # type: ignore[arg-type]


async def test_a_tenant_comes_back_as_it_was_made_to_the_api_and_to_shards(world: World) -> None:
    tenant = world.tenant(
        "third", weight=3, job_quota=7, requests_per_second=11, secrets=("whsec_b", "whsec_a")
    )
    await world.tenants.create("operator", tenant)
    await world.tenants.create("operator", tenant)
    assert await world.tenants.read([tenant.tenant_id, uuid4()]) == [tenant]
    assert await world.shard_tenants.read([tenant.tenant_id]) == [tenant]


async def test_tenants_are_listed_by_name_in_pages(world: World) -> None:
    await world.tenants.create("operator", world.tenant("another"))
    first = await world.tenants.list_tenants(2)
    rest = await world.tenants.list_tenants(2, first[-1].name)
    assert [tenant.name for tenant in first] == ["another", "one"]
    assert [tenant.name for tenant in rest] == ["other"]


async def test_names_of_tenants_are_unique(world: World) -> None:
    with pytest.raises(TenantNameTaken):
        await world.tenants.create("operator", world.tenant("one"))
    (other,) = await world.tenants.read([world.other.tenant_id])
    with pytest.raises(TenantNameTaken):
        await world.tenants.edit("operator", replace(other, name="one"))


async def test_an_edit_replaces_all_but_the_birthday(world: World) -> None:
    (before,) = await world.tenants.read([world.caller.tenant_id])
    edited = replace(before, name="renamed", weight=9, secrets=("whsec_new", "whsec_old"))
    await world.tenants.edit("operator", replace(edited, created_at_us=0))
    assert await world.tenants.read([before.tenant_id]) == [edited]
    with pytest.raises(TenantNotFound):
        await world.tenants.edit("operator", world.tenant("nobody"))


async def test_a_token_is_found_by_its_digest_until_after_it_is_revoked(world: World) -> None:
    made = token(world, b"1")
    await world.tenants.add_token("operator", made)
    await world.tenants.add_token("operator", made)
    assert await world.tenants.find_token(b"1") == made
    assert await world.tenants.find_token(b"2") is None
    revoked = await world.tenants.revoke_token("operator", b"1")
    assert revoked.revoked_at_us is not None
    assert await world.tenants.revoke_token("operator", b"1") == revoked
    assert await world.tenants.find_token(b"1") == revoked
    with pytest.raises(TokenNotFound):
        await world.tenants.revoke_token("operator", b"2")


async def test_the_tokens_of_a_tenant_are_its_own(world: World) -> None:
    later = token(world, b"1", created_at_us=world.now_us + 1)
    earlier = token(world, b"2")
    theirs = token(world, b"3", tenant_id=world.other.tenant_id)
    for made in (later, earlier, theirs):
        await world.tenants.add_token("operator", made)
    assert await world.tenants.list_tokens(world.caller.tenant_id) == [earlier, later]
    with pytest.raises(TenantNotFound):
        await world.tenants.add_token("operator", token(world, b"4", tenant_id=uuid4()))


async def test_what_operators_do_is_in_the_audit_without_its_secrets(world: World) -> None:
    (before,) = await world.tenants.read([world.caller.tenant_id])
    await world.tenants.edit("alice", replace(before, secrets=("whsec_new",)))
    await world.tenants.add_token("alice", token(world, b"1"))
    await world.tenants.revoke_token("bob", b"1")
    lines = [line for line in await world.audit() if line[1] != "operator"]
    assert [line[1:3] for line in lines] == [
        ("alice", "tenant.edit"),
        ("alice", "token.add"),
        ("bob", "token.revoke"),
    ]
    assert {line[0] for line in lines} == {world.caller.tenant_id}
    assert "whsec" not in str(lines)


async def limit(world: World, job_quota: int) -> None:
    (tenant,) = await world.tenants.read([world.caller.tenant_id])
    await world.tenants.edit("operator", replace(tenant, job_quota=job_quota))


async def test_a_quota_is_all_or_nothing(world: World) -> None:
    await limit(world, 3)
    jobs = [Registration(world.job(f"job {n}"), world.now_us) for n in range(4)]
    with pytest.raises(QuotaExceeded) as raised:
        await world.jobs.register(world.caller, jobs)
    assert (raised.value.room, len(raised.value.new)) == (3, 4)
    assert await world.jobs.list_jobs(world.caller, JobFilter(), 9) == []
    assert await world.jobs.register(world.caller, jobs[:3]) == set()
    more = [Registration(world.job(f"more {n}"), world.now_us) for n in range(2)]
    with pytest.raises(QuotaExceeded) as raised:  # what is there, or has a taken name, is not new
        await world.jobs.register(world.caller, [*jobs[:3], *more])
    assert (raised.value.room, raised.value.new) == (0, {each.job.job_id for each in more})
    with pytest.raises(QuotaExceeded):
        await world.jobs.register(world.caller, jobs[3:])
    assert await world.jobs.register(world.other, [Registration(world.job(), None)]) == set()


async def test_a_registration_of_several_parts_is_one(world: World) -> None:
    await limit(world, 2_500)
    jobs = [Registration(world.job(f"job {n}"), world.now_us) for n in range(2_501)]
    with pytest.raises(QuotaExceeded, match="none was registered"):
        await world.jobs.register(world.caller, jobs)
    assert await world.jobs.list_jobs(world.caller, JobFilter(), 9) == []
    assert await world.jobs.register(world.caller, jobs[:2_500]) == set()
    assert len(await world.timers.load(ALL, world.now_us)) == 2_500
    lines = [line for line in await world.audit() if line[2] == "job.register"]
    assert [line[3] for line in lines] == ["2500 jobs"]


async def test_only_what_is_new_counts_against_the_quota(world: World) -> None:
    await limit(world, 2)
    job = await world.register(world.now_us, "taken")
    again = [Registration(job, world.now_us), Registration(world.job("taken"), world.now_us)]
    new = Registration(world.job("new"), world.now_us)
    assert await world.jobs.register(world.caller, [*again, new]) == {again[1].job.job_id}
    assert await world.jobs.register(world.caller, [*again, new]) == {again[1].job.job_id}


async def test_what_is_deleted_makes_room(world: World) -> None:
    await limit(world, 1)
    job = await world.register(world.now_us, "first")
    await world.jobs.delete(world.caller, job.job_id)
    await world.register(world.now_us, "second")


async def test_many_at_once_do_not_exceed_a_quota(world: World) -> None:
    await limit(world, 5)

    async def register(number: int) -> bool:
        try:
            await world.register(world.now_us, f"job {number}")
        except QuotaExceeded:
            return False
        return True

    done = await asyncio.gather(*(register(number) for number in range(12)))
    assert sum(done) == 5
    assert len(await world.jobs.list_jobs(world.caller, JobFilter(), 20)) == 5


async def test_registering_for_an_unknown_tenant_is_refused(world: World) -> None:
    stranger = Caller(uuid4(), "stranger")
    with pytest.raises(TenantNotFound):
        await world.jobs.register(stranger, [Registration(world.job(), world.now_us)])


async def test_a_tenant_is_changed_from_what_it_was_read_as(world: World) -> None:
    before = world.tenant("new", secrets=("whsec_a",))
    await world.tenants.create("operator", before)
    changed = replace(before, weight=5)
    await world.tenants.edit("operator", changed, before)
    await world.tenants.edit("operator", changed, before)  # sent again
    with pytest.raises(TenantChanged):
        await world.tenants.edit("operator", replace(before, job_quota=1), before)
    assert await world.tenants.read([before.tenant_id]) == [changed]
