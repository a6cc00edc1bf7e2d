"""Under arm and sweep: claims that are sent until they are answered.

Invariant: what a claim has won is ours, whichever sending of it did it. After a sending whose
answer was lost, the runs that the next one does not win may be ours from before: their token says.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

from wheelsched.core.model import Run, RunKey, RunState
from wheelsched.errors import FenceRaised, LeaseLost, StoreError
from wheelsched.ports import Adoption, Claim, ClaimedRetry, Lease
from wheelsched.shard.context import Context

Answer = TypeVar("Answer")
_CLAIMED_STATES = (RunState.ARMED, RunState.RUNNING)  # one that was carried stays so when adopted


class Claims:
    """Arms and adopts under the lease."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._was_ambiguous = False
        self.refused: set[RunKey] = set()  # of the latest claims, those that the store refused

    async def arm(self, claims: Sequence[Claim]) -> set[RunKey]:
        """Arms, and gives the runs that were not won, and the keys of claims that were lost."""
        self._was_ambiguous = False
        answer = await self._context.patience.insist_in_parts("run.arm", claims, self._arm)
        self.refused = {item.key for item in answer.refused}
        tokens = {
            RunKey(claim.job_id, run.due_us): run.token for claim in claims for run in claim.runs
        }
        unasked = {
            RunKey(claim.job_id, run.due_us)
            for claim in claims
            if claim.key in self.refused
            for run in claim.runs
        }
        lost = set(answer.answers)
        won_before = {run.key for run in await self._won_before(lost, tokens)}
        return self.refused | unasked | lost - won_before

    async def arm_retries(self, retries: Sequence[ClaimedRetry]) -> list[Run]:
        """Arms further attempts, and gives the runs that were won."""
        self._was_ambiguous = False
        patience = self._context.patience
        answer = await patience.insist_in_parts("run.arm", retries, self._arm_retries)
        self.refused = {item.key for item in answer.refused}
        tokens = {retry.key: retry.token for retry in retries}
        lost = tokens.keys() - {run.key for run in answer.answers} - self.refused
        return [*answer.answers, *await self._won_before(lost, tokens)]

    async def adopt(self, adoptions: Sequence[Adoption]) -> set[RunKey]:
        """Makes unfinished runs ours, and gives those that were not won."""
        self._was_ambiguous = False
        patience = self._context.patience
        answer = await patience.insist_in_parts("run.adopt", adoptions, self._adopt)
        self.refused = {item.key for item in answer.refused}
        tokens = {adoption.key: adoption.token for adoption in adoptions}
        lost = set(answer.answers)
        return self.refused | lost - {run.key for run in await self._won_before(lost, tokens)}

    async def _arm(self, claims: Sequence[Claim]) -> set[RunKey]:
        timers = self._context.stores.timers
        return await self._ask(
            "run.arm", lambda lease: timers.arm(lease, claims), even_if_refused=False
        )

    async def _arm_retries(self, retries: Sequence[ClaimedRetry]) -> list[Run]:
        timers = self._context.stores.timers
        return await self._ask(
            "run.arm", lambda lease: timers.arm_retries(lease, retries), even_if_refused=False
        )

    async def _adopt(self, adoptions: Sequence[Adoption]) -> set[RunKey]:
        runs = self._context.stores.runs
        return await self._ask(
            "run.adopt", lambda lease: runs.adopt(lease, adoptions), even_if_refused=False
        )

    async def _ask(
        self, what: str, ask: Callable[[Lease], Awaitable[Answer]], *, even_if_refused: bool
    ) -> Answer:
        async def noted(lease: Lease) -> Answer:
            try:
                return await ask(lease)
            except (LeaseLost, FenceRaised):
                raise
            except StoreError:
                self._was_ambiguous = True
                raise

        return await self._context.patience.insist_leased(
            what, noted, even_if_refused=even_if_refused
        )

    async def _won_before(
        self, lost: Collection[RunKey], tokens: Mapping[RunKey, int]
    ) -> list[Run]:
        """The runs among `lost` that an earlier sending has won."""
        if not lost or not self._was_ambiguous:
            return []
        checked = await self._context.patience.insist(
            "run.recheck", lambda: self._context.stores.runs.recheck(lost)
        )
        return [
            check.run
            for check in checked
            if check.run.token == tokens.get(check.run.key) and check.run.state in _CLAIMED_STATES
        ]
