"""The API, put together: read this first.

Invariant: what is served is what the operations say. Nothing here knows which store it is.
"""

from itertools import chain

from aiohttp import web

from wheelsched.api.authentication import Authentication
from wheelsched.api.bulk import Bulk
from wheelsched.api.dead import Dead
from wheelsched.api.envelope import envelope
from wheelsched.api.job_verbs import JobVerbs
from wheelsched.api.jobs import Jobs
from wheelsched.api.openapi import describe
from wheelsched.api.operation import PREFIX, Operation
from wheelsched.api.probes import Probes
from wheelsched.api.rates import Rates
from wheelsched.api.replays import Replays
from wheelsched.api.run_lists import RunLists
from wheelsched.api.runs import Runs
from wheelsched.api.schedules import Schedules
from wheelsched.api.service import Service
from wheelsched.api.shards import Shards
from wheelsched.api.surroundings import Surroundings
from wheelsched.api.tenants import Tenants
from wheelsched.api.tokens import Tokens
from wheelsched.api.waiting import Waiting
from wheelsched.config import ApiConfig
from wheelsched.ports import Stores


def build_app(stores: Stores, surroundings: Surroundings, config: ApiConfig) -> web.Application:
    """The application; `ApiServer` runs it, and so does any other aiohttp runner."""
    operations = all_operations(stores, surroundings, config)
    service = Service(
        Authentication(stores.tenants, surroundings.clock, config),
        Rates(surroundings.clock),
        Replays(stores.idempotency),
        surroundings,
        config,
    )
    app = web.Application(middlewares=[envelope(surroundings, operations)])
    probes = Probes(stores.leases, stores.timers, surroundings, describe(operations))
    app.add_routes(probes.routes())
    for operation in operations:
        app.router.add_route(operation.method, PREFIX + operation.path, service.handler(operation))
    return app


def all_operations(
    stores: Stores, surroundings: Surroundings, config: ApiConfig
) -> list[Operation]:
    """The table of the API, row by row. `/jobs/bulk` is no job: it stands before them."""
    jobs, history, rules = stores.jobs, stores.history, config.egress.rules
    waiting = Waiting(stores.leases, rules)
    return list(
        chain(
            Bulk(jobs, surroundings, rules, config).operations(),
            Jobs(jobs, surroundings, rules).operations(),
            JobVerbs(jobs, history, config.max_requested_runs).operations(),
            Schedules(jobs, history, surroundings, rules, waiting).operations(),
            Runs(jobs, history, surroundings, waiting).operations(),
            RunLists(jobs, history).operations(),
            Dead(jobs, history).operations(),
            Shards(stores.leases, surroundings).operations(),
            Tenants(stores.tenants, surroundings).operations(),
            Tokens(stores.tenants).operations(),
        )
    )
