"""`tenant` and `token`: operator commands, over the API or on the database.

Invariant: the API shows a secret once, in the response that creates it. After that only the
database owner can read it.
"""

from typing import Annotated, Final
from uuid import UUID

import typer

from wheelsched.cli.commands.serving import DataDirOption, RequiredDatabaseOption
from wheelsched.cli.operators import DatabaseOperators, Operators, with_operators
from wheelsched.cli.output import Output, record, rows, sentence
from wheelsched.cli.shared import DatabaseOption, group, with_output
from wheelsched.daemon.api import LOCAL_TENANT
from wheelsched.embedded.postgres import embedded_url
from wheelsched.errors import TenantNotFound
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

tenant_app = group("Manage tenants.")
token_app = group("Manage API tokens.")

WEIGHT: Final = typer.Option(
    min=1, max=MAX_WEIGHT, help="Share of the dispatch capacity, relative to other tenants."
)
JOB_QUOTA: Final = typer.Option(min=0, max=MAX_QUOTA, help="Maximum number of unfinished jobs.")
RATE: Final = typer.Option(
    "--requests-per-second",
    "--rate",
    min=1,
    max=MAX_QUOTA,
    help="API request rate limit.",
)

TenantArgument = Annotated[str, typer.Argument(help="Tenant id or name.")]
RoleOption = Annotated[str, typer.Option(help="Database role of the application.")]
TenantOption = Annotated[
    str | None, typer.Option(help="Tenant id or name; by default the caller's own.")
]


@tenant_app.command("create")
@with_operators
def create_tenant(
    operators: Operators,
    name: Annotated[str, typer.Argument(help="Unique name of the tenant.")],
    weight: Annotated[int, WEIGHT] = 1,
    job_quota: Annotated[int, JOB_QUOTA] = 100_000,
    requests_per_second: Annotated[int, RATE] = 1_000,
) -> Output:
    """Create a tenant. Its signing secret is shown once."""
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
@with_operators
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
@with_output
def grant(
    tenant: TenantArgument, database_role: RoleOption, database_url: RequiredDatabaseOption
) -> Output:
    """Allow a database role to schedule jobs for a tenant with wheelsched.schedule in SQL."""
    operators = DatabaseOperators(database_url)
    operators.grant(_find_named(operators, tenant), database_role)
    return _shown_grant(tenant, database_role, "may now schedule jobs for")


@tenant_app.command("revoke")
@with_output
def revoke(
    tenant: TenantArgument, database_role: RoleOption, database_url: RequiredDatabaseOption
) -> Output:
    """Revoke a database role's grant. The jobs it scheduled remain."""
    operators = DatabaseOperators(database_url)
    operators.revoke(_find_named(operators, tenant), database_role)
    return _shown_grant(tenant, database_role, "may no longer schedule jobs for")


@tenant_app.command("grants")
@with_output
def list_grants(database_url: RequiredDatabaseOption) -> Output:
    """List database roles and the tenants they schedule jobs for."""
    return rows(
        DatabaseOperators(database_url).list_grants(),
        {
            "database role": lambda grant: grant.database_role,
            "tenant": lambda grant: grant.tenant,
            "granted": lambda grant: grant.granted_at,
        },
    )


@tenant_app.command("update")
@with_operators
def update_tenant(
    operators: Operators,
    tenant: TenantArgument,
    name: Annotated[str | None, typer.Option(help="New name.")] = None,
    weight: Annotated[int | None, WEIGHT] = None,
    job_quota: Annotated[int | None, JOB_QUOTA] = None,
    requests_per_second: Annotated[int | None, RATE] = None,
) -> Output:
    """Change a tenant. The API applies it within seconds, shards within two minutes."""
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
@with_operators
def rotate_secret(
    operators: Operators,
    tenant: TenantArgument,
    finish: Annotated[bool, typer.Option("--finish", help="Remove the old secret.")] = False,
) -> Output:
    """Create a new signing secret, shown once. Callbacks are signed with both until --finish."""
    rotated = operators.rotate_secret(_find_named(operators, tenant), RotateRequest(finish=finish))
    if finish:
        return sentence(rotated, f"removed the old secret of {rotated.name}")
    return record(rotated, {"id": rotated.tenant_id, "secret": rotated.secret})


@tenant_app.command("secret")
@with_output
def show_secret(
    tenant: Annotated[str, typer.Argument(help="Tenant id or name.")] = LOCAL_TENANT,
    database_url: DatabaseOption = None,
    data_dir: DataDirOption = None,
) -> Output:
    """Show the signing secret of a tenant, or both during a rotation.

    It is read from the database given by --database-url, or from a running `wheelsched up`.
    """
    operators = DatabaseOperators(database_url or embedded_url(data_dir))
    secrets = operators.read_secrets(_find_named(operators, tenant))
    return sentence({"tenant": tenant, "secrets": secrets}, " ".join(secrets))


@token_app.command("create")
@with_operators
def create_token(
    operators: Operators,
    name: Annotated[str, typer.Argument(help="Name of the token.")],
    tenant: TenantOption = None,
    scope: Annotated[
        list[Scope] | None,
        typer.Option(help="Permission of the token; repeatable; default read and write."),
    ] = None,
) -> Output:
    """Create a token. It is shown once."""
    token = operators.create_token(
        TokenRequest(
            name=name,
            scopes=tuple(scope or (Scope.READ, Scope.WRITE)),
            tenant_id=_find(operators, tenant),
        )
    )
    return record(token, {"token": token.token, "scopes": token.scopes, "id": token.token_id})


@token_app.command("list")
@with_operators
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
@with_operators
def revoke_token(
    operators: Operators,
    token_id: Annotated[str, typer.Argument(help="Token id, from `token list`.", metavar="ID")],
) -> Output:
    """Revoke a token. It stops working within seconds."""
    token = operators.revoke_token(token_id)
    return sentence(token, f"revoked {token.name}")


def _shown_grant(tenant: str, database_role: str, verb: str) -> Output:
    answer = GrantAnswer(database_role=database_role, tenant=tenant)
    return sentence(answer, f"{database_role} {verb} {tenant}")


def _find(operators: Operators, id_or_name: str | None) -> UUID | None:
    return None if id_or_name is None else _find_named(operators, id_or_name)


def _find_named(operators: Operators, id_or_name: str) -> UUID:
    """The id of the tenant with this id or name."""
    try:
        return UUID(id_or_name)
    except ValueError:
        pass
    for tenant in operators.list_tenants():
        if tenant.name == id_or_name:
            return tenant.tenant_id
    raise TenantNotFound(f"tenant {id_or_name!r} not found; list all with `wheelsched tenant list`")
