"""The receiver: a request in, an answer out, whatever transport carries them.

Invariant: it raises nothing but a cancellation; and what it has not verified it does not decode.
"""

import asyncio
import logging
from collections.abc import Mapping
from http import HTTPStatus

from wheelsched.core.outcome import Outcome
from wheelsched.errors import InvalidCallback, UnverifiedCallback
from wheelsched.worker import log
from wheelsched.worker.answer import Answer, refuse, write_answer, write_answers
from wheelsched.worker.crew import Crew
from wheelsched.worker.delivery import Delivery, read_request
from wheelsched.worker.handler import Handler
from wheelsched.worker.signature import Verifier


class Receiver:
    """Verifies a request, has its runs performed, and answers.

    `handlers` are by the name of their job; that of None is for all other jobs.
    """

    def __init__(
        self,
        verifier: Verifier,
        handlers: Mapping[str | None, Handler],
        crew: Crew,
        max_body_bytes: int,
    ) -> None:
        self._verifier = verifier
        self._handlers = handlers
        self._crew = crew
        self.max_body_bytes = max_body_bytes

    async def receive(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """The answer to a request. The names of its headers are lower case."""
        deliveries = self.read(headers, body)
        return deliveries if isinstance(deliveries, Answer) else await self.perform(deliveries)

    def read(self, headers: Mapping[str, str], body: bytes) -> Delivery | list[Delivery] | Answer:
        """The run or the batch of runs of a verified request, or the answer that refuses it."""
        if len(body) > self.max_body_bytes:
            return refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the body is too large")
        if not self._crew.has_room:
            return refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the worker takes no more now", 1)
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
        """Have the runs of a request performed, and give their answer."""
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
        return await self._crew.perform(delivery, handler)


def _log_refusal(error: Exception) -> None:
    log.write(logging.WARNING, "request.refused", str(error), {"error": str(error)})
