"""Handles a callback request, independent of the web framework.

Invariant: it raises nothing but a cancellation, and it decodes nothing before verifying it.
"""

import asyncio
import logging
from collections.abc import Mapping
from http import HTTPStatus

from wheelsched.core.outcome import Outcome
from wheelsched.errors import InvalidCallback, UnverifiedCallback
from wheelsched.worker import log
from wheelsched.worker.answer import Answer, refuse, write_answer, write_answers
from wheelsched.worker.delivery import Delivery, read_request
from wheelsched.worker.executor import Executor
from wheelsched.worker.handler import Handler
from wheelsched.worker.signature import Verifier


class Receiver:
    """Verifies a request, performs its runs and returns the response.

    `handlers` maps job names to handlers. The handler for None serves all other jobs.
    """

    def __init__(
        self,
        verifier: Verifier,
        handlers: Mapping[str | None, Handler],
        executor: Executor,
        max_body_bytes: int,
    ) -> None:
        self._verifier = verifier
        self._handlers = handlers
        self._executor = executor
        self.max_body_bytes = max_body_bytes

    async def receive(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """Handle a request. The names of its headers must be lower case."""
        deliveries = self.read(headers, body)
        return deliveries if isinstance(deliveries, Answer) else await self.perform(deliveries)

    def read(self, headers: Mapping[str, str], body: bytes) -> Delivery | list[Delivery] | Answer:
        """Verify a request. Returns its run, its batch of runs, or the response that refuses it."""
        if len(body) > self.max_body_bytes:
            return refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body is too large")
        if not self._executor.has_room:
            return refuse(HTTPStatus.SERVICE_UNAVAILABLE, "worker busy; retry after 1 s", 1)
        try:
            webhook_id = self._verifier.verify(headers, body)
            return read_request(headers, body, webhook_id)
        except UnverifiedCallback as error:
            _log_refusal(error)
            return refuse(HTTPStatus.UNAUTHORIZED, str(error))
        except InvalidCallback as error:
            _log_refusal(error)
            return refuse(HTTPStatus.BAD_REQUEST, str(error))

    async def perform(self, deliveries: Delivery | list[Delivery]) -> Answer:
        """Perform the runs of a request and return the response."""
        if isinstance(deliveries, Delivery):
            return write_answer(await self._perform(deliveries))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._perform(each)) for each in deliveries]
        return write_answers(
            (delivery.run_id, task.result())
            for delivery, task in zip(deliveries, tasks, strict=True)
        )

    async def _perform(self, delivery: Delivery) -> Outcome:
        handler = self._handlers.get(delivery.job_name) or self._handlers.get(None)
        return await self._executor.perform(delivery, handler)


def _log_refusal(error: Exception) -> None:
    log.write(logging.WARNING, "request.refused", str(error), {"error": str(error)})
