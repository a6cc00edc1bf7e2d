"""What `db migrate` says."""

import pytest

from wheelsched.cli.commands.database import describe_migration
from wheelsched.daemon.database import MigrationReport

ROLE, RIGHT = "CREATE ROLE wheelsched_shard NOLOGIN", "GRANT SELECT ON jobs TO wheelsched_shard"


@pytest.mark.parametrize(
    ("applied", "repaired", "said"),
    [
        ([], [], "nothing to apply; schema, roles and privileges are up to date"),
        (["0001_roles"], [], "applied 0001_roles"),
        ([], [ROLE], f"repaired roles and privileges: {ROLE}"),
        ([], [ROLE, RIGHT, RIGHT], f"repaired roles and privileges: {ROLE} and 2 more"),
        (["0001_roles"], [ROLE], f"applied 0001_roles; created roles and privileges: {ROLE}"),
    ],
)
def test_a_migration_says_what_it_applied_and_repaired(
    applied: list[str], repaired: list[str], said: str
) -> None:
    assert describe_migration(MigrationReport(applied=applied, repaired=repaired)) == said
