"""Assembles the API; start reading here.

Invariant: the API serves exactly the operations listed here, on any store.
"""

from itertools import chain

from aiohttp import web

from wheelsched.api.environment import Environment
from wheelsched.api.http.access_control import AccessControl, Gate
from wheelsched.api.http.admission import Admission
from wheelsched.api.http.authentication import Authentication
from wheelsched.api.http.connections import LEAVE
from wheelsched.api.http.idempotency import IdempotencyKeys
from wheelsched.api.http.middleware import middleware
from wheelsched.api.http.operation import PREFIX, Operation
from wheelsched.api.http.rate_limit import RateLimit
from wheelsched.api.http.service import Service
from wheelsched.api.openapi.document import describe
from wheelsched.api.resources.bulk import Bulk
from wheelsched.api.resources.dead import DeadRuns
from wheelsched.api.resources.job_verbs import JobVerbs
from wheelsched.api.resources.jobs import Jobs
from wheelsched.api.resources.probes import Probes
from wheelsched.api.resources.queues import Queues
from wheelsched.api.resources.run_lists import RunLists
from wheelsched.api.resources.runs import Runs
from wheelsched.api.resources.schedules import Schedules
from wheelsched.api.resources.shards import Shards
from wheelsched.api.resources.tenants import Tenants
from wheelsched.api.resources.tokens import Tokens
from wheelsched.api.resources.waiting import Waiting
from wheelsched.api.work.service import WorkService
from wheelsched.config import ApiConfig
from wheelsched.ports import Stores


def build_app(stores: Stores, environment: Environment, config: ApiConfig) -> web.Application:
    """The application; `ApiServer` or any other aiohttp runner can run it."""
    access = AccessControl(
        Authentication(stores.tenants, environment.clock, config), RateLimit(environment.clock)
    )
    work = WorkService(environment, config, access)
    queues = Queues(work)
    operations = [*queues.operations(), *all_operations(stores, environment, config)]
    admission = Admission(config)
    service = Service(access, admission, IdempotencyKeys(stores.idempotency), environment, config)
    app = web.Application(middlewares=[middleware(environment, operations)])
    probes = Probes(stores.leases, stores.timers, environment, describe(operations))
    app.add_routes(probes.routes())
    for operation in operations:
        app.router.add_route(operation.method, PREFIX + operation.path, service.handler(operation))
    app.cleanup_ctx.append(queues.keep)
    app[LEAVE] = work.stop
    if config.grpc is not None:
        from wheelsched.api.grpc.app import add_grpc  # noqa: PLC0415 - requires an extra

        add_grpc(app, work, Gate(access, admission), environment, config)
    return app


def all_operations(stores: Stores, environment: Environment, config: ApiConfig) -> list[Operation]:
    """The operations on the store. `/jobs/bulk` must precede `/jobs/{job_id}`."""
    jobs, history, rules = stores.jobs, stores.history, config.egress.rules
    waiting = Waiting(stores.leases, rules)
    return list(
        chain(
            Bulk(jobs, environment, rules, config).operations(),
            Jobs(jobs, environment, rules).operations(),
            JobVerbs(jobs, history, config.max_requested_runs).operations(),
            Schedules(jobs, history, environment, rules, waiting).operations(),
            Runs(jobs, history, environment, waiting).operations(),
            RunLists(jobs, history).operations(),
            DeadRuns(jobs, history).operations(),
            Shards(stores.leases, environment).operations(),
            Tenants(stores.tenants, environment).operations(),
            Tokens(stores.tenants).operations(),
        )
    )
