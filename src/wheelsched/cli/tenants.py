"""`tenant` and `token`: what operators do, at the database or over the API.

Invariant: the API shows a secret once, in the answer that makes it. Later only whoever can connect
to the database as its owner reads it.
"""

from typing import Annotated, Final
from uuid import UUID

import typer

from wheelsched.cli.commands import DatabaseOption, group, shows
from wheelsched.cli.operators import DatabaseOperators, Operators, asks_operators
from wheelsched.cli.output import Output, record, rows, sentence
from wheelsched.cli.serving import DataDirOption, RequiredDatabaseOption
from wheelsched.daemon.api import LOCAL_TENANT
from wheelsched.errors import TenantNotFound
from wheelsched.store.embedded import embedded_url
from wheelsched.wire.tenant import (
    MAX_QUOTA,
    MAX_WEIGHT,
    GrantAnswer,
    RotateRequest,
    Scope,
    TenantChanges,
    TenantRequest,
    TokenRequest,
)

tenant_app = group("Who has jobs.")
token_app = group("Who may ask the API for what.")

WEIGHT: Final = typer.Option(min=1, max=MAX_WEIGHT, help="Its share of what is dispatched.")
JOB_QUOTA: Final = typer.Option(min=0, max=MAX_QUOTA, help="How many jobs it may have.")
RATE: Final = typer.Option(
    "--requests-per-second",
    "--rate",
    min=1,
    max=MAX_QUOTA,
    help="How often it may ask the API.",
)

TenantArgument = Annotated[str, typer.Argument(help="The tenant's id or name.")]
RoleOption = Annotated[str, typer.Option(help="What the application connects as.")]
TenantOption = Annotated[
    str | None, typer.Option(help="The tenant's id or name; the caller's own by default.")
]


@tenant_app.command("create")
@asks_operators
def create_tenant(
    operators: Operators,
    name: Annotated[str, typer.Argument(help="Unique.")],
    weight: Annotated[int, WEIGHT] = 1,
    job_quota: Annotated[int, JOB_QUOTA] = 100_000,
    requests_per_second: Annotated[int, RATE] = 1_000,
) -> Output:
    """Create a tenant. The secret that signs its callbacks is shown once."""
    tenant = operators.create_tenant(
        TenantRequest(
            name=name,
            weight=weight,
            job_quota=job_quota,
            requests_per_second=requests_per_second,
        )
    )
    return record(tenant, {"id": tenant.tenant_id, "name": tenant.name, "secret": tenant.secret})


@tenant_app.command("list")
@asks_operators
def list_tenants(operators: Operators) -> Output:
    """List tenants by name."""
    return rows(
        list(operators.list_tenants()),
        {
            "name": lambda tenant: tenant.name,
            "weight": lambda tenant: tenant.weight,
            "job quota": lambda tenant: f"{tenant.job_quota:,}",
            "requests/s": lambda tenant: f"{tenant.requests_per_second:,}",
            "created": lambda tenant: tenant.created_at,
            "id": lambda tenant: tenant.tenant_id,
        },
    )


@tenant_app.command("grant")
@shows
def grant(
    tenant: TenantArgument, database_role: RoleOption, database_url: RequiredDatabaseOption
) -> Output:
    """Let a database role schedule jobs for a tenant, by wheelsched.schedule in SQL."""
    operators = DatabaseOperators(database_url)
    operators.grant(_find_named(operators, tenant), database_role)
    return _shown_grant(tenant, database_role, "speaks for")


@tenant_app.command("revoke")
@shows
def revoke(
    tenant: TenantArgument, database_role: RoleOption, database_url: RequiredDatabaseOption
) -> Output:
    """Let a database role speak no more for a tenant. Its jobs stay."""
    operators = DatabaseOperators(database_url)
    operators.revoke(_find_named(operators, tenant), database_role)
    return _shown_grant(tenant, database_role, "speaks no more for")


@tenant_app.command("grants")
@shows
def list_grants(database_url: RequiredDatabaseOption) -> Output:
    """List the database roles that speak for tenants."""
    return rows(
        DatabaseOperators(database_url).list_grants(),
        {
            "database role": lambda grant: grant.database_role,
            "tenant": lambda grant: grant.tenant,
            "granted": lambda grant: grant.granted_at,
        },
    )


@tenant_app.command("update")
@asks_operators
def update_tenant(
    operators: Operators,
    tenant: TenantArgument,
    name: Annotated[str | None, typer.Option(help="Another name.")] = None,
    weight: Annotated[int | None, WEIGHT] = None,
    job_quota: Annotated[int | None, JOB_QUOTA] = None,
    requests_per_second: Annotated[int | None, RATE] = None,
) -> Output:
    """Change a tenant. The API knows of it within seconds, shards within two minutes."""
    changes = TenantChanges(
        name=name, weight=weight, job_quota=job_quota, requests_per_second=requests_per_second
    )
    changed = operators.update_tenant(_find_named(operators, tenant), changes)
    return record(
        changed,
        {
            "id": changed.tenant_id,
            "name": changed.name,
            "weight": changed.weight,
            "job quota": changed.job_quota,
            "requests/s": changed.requests_per_second,
        },
    )


@tenant_app.command("rotate-secret")
@asks_operators
def rotate_secret(
    operators: Operators,
    tenant: TenantArgument,
    finish: Annotated[
        bool, typer.Option("--finish", help="Sign with the newest secret alone from now on.")
    ] = False,
) -> Output:
    """Make a new secret, shown once. Callbacks are signed with it and with the one before it."""
    rotated = operators.rotate_secret(_find_named(operators, tenant), RotateRequest(finish=finish))
    if finish:
        return sentence(rotated, f"{rotated.name} has one secret")
    return record(rotated, {"id": rotated.tenant_id, "secret": rotated.secret})


@tenant_app.command("secret")
@shows
def show_secret(
    tenant: Annotated[str, typer.Argument(help="The tenant's id or name.")] = LOCAL_TENANT,
    database_url: DatabaseOption = None,
    data_dir: DataDirOption = None,
) -> Output:
    """Show the secret that signs a tenant's callbacks; while it is rotated, both.

    It is read from the database: of --database-url, or else of `wheelsched up`, which has to run.
    """
    operators = DatabaseOperators(database_url or embedded_url(data_dir))
    secrets = operators.read_secrets(_find_named(operators, tenant))
    return sentence({"tenant": tenant, "secrets": secrets}, " ".join(secrets))


@token_app.command("create")
@asks_operators
def create_token(
    operators: Operators,
    name: Annotated[str, typer.Argument(help="What it is for.")],
    tenant: TenantOption = None,
    scope: Annotated[list[Scope] | None, typer.Option(help="read, write, admin, operator.")] = None,
) -> Output:
    """Make a token. It is shown once."""
    token = operators.create_token(
        TokenRequest(
            name=name,
            scopes=tuple(scope or (Scope.READ, Scope.WRITE)),
            tenant_id=_find(operators, tenant),
        )
    )
    return record(token, {"token": token.token, "scopes": token.scopes, "id": token.token_id})


@token_app.command("list")
@asks_operators
def list_tokens(operators: Operators, tenant: TenantOption = None) -> Output:
    """List the tokens of a tenant, oldest first."""
    return rows(
        list(operators.list_tokens(_find(operators, tenant))),
        {
            "name": lambda token: token.name,
            "scopes": lambda token: token.scopes,
            "created": lambda token: token.created_at,
            "revoked": lambda token: token.revoked_at,
            "id": lambda token: token.token_id,
        },
    )


@token_app.command("revoke")
@asks_operators
def revoke_token(
    operators: Operators,
    token_id: Annotated[str, typer.Argument(help="As `token list` shows it.", metavar="ID")],
) -> Output:
    """Revoke a token; within seconds nobody is answered for it any more."""
    token = operators.revoke_token(token_id)
    return sentence(token, f"revoked {token.name}")


def _shown_grant(tenant: str, database_role: str, verb: str) -> Output:
    answer = GrantAnswer(database_role=database_role, tenant=tenant)
    return sentence(answer, f"{database_role} {verb} {tenant}")


def _find(operators: Operators, written: str | None) -> UUID | None:
    return None if written is None else _find_named(operators, written)


def _find_named(operators: Operators, written: str) -> UUID:
    """The id of a tenant that is named by it, or by its name."""
    try:
        return UUID(written)
    except ValueError:
        pass
    for tenant in operators.list_tenants():
        if tenant.name == written:
            return tenant.tenant_id
    raise TenantNotFound(f"there is no tenant {written!r}; `wheelsched tenant list` shows all")
