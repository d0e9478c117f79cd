"""What becomes of a request that nobody alive could run: it fails at once, or a worker has a grace to come in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from attune.domain.availability.missing import no_worker
from attune.domain.execution import Failure, Status
from attune.storage.availability import serving
from attune.storage.births import Birth, NewExecution
from attune.storage.tx import Tx

ACTOR = "acceptance"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unserved:
    """The actions of a batch that no living worker could run, with how their executions fail; usually none."""

    failures: Mapping[int, Failure]
    grace_seconds: float

    def fails(self, item: NewExecution) -> bool:
        """Whether it ends at once: not what starts later or is pinned, and nothing that a worker has a grace for."""
        return item.action_id in self.failures and self.grace_seconds <= 0 and not item.waits_outside

    def judge(self, birth: Birth) -> Birth:
        """The same birth, or one that ends at once, or one with a grace."""
        failure = self.failures.get(birth.new.action_id)
        if failure is None or birth.failure is not None or birth.new.waits_outside:
            return birth
        if self.fails(birth.new):
            return replace(birth, status=Status.FAILED, failure=failure)
        return replace(birth, worker_within=self.grace_seconds)


async def find_unserved(tx: Tx, action_ids: Sequence[int], *, grace_seconds: float) -> Unserved:
    """One look, and a second only where somebody has to be told what is missing."""
    unserved = await serving.list_unserved(tx, action_ids)
    living = await serving.list_living(tx) if unserved else []
    failures = {action_id: no_worker(wanted, living, by=ACTOR) for action_id, wanted in unserved.items()}
    return Unserved(failures=failures, grace_seconds=grace_seconds)
