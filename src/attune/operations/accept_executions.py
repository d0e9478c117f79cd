"""Takes requests that arrived together, each from somebody else, into one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from attune.domain.errors import AttuneError
from attune.domain.idempotency import Answered, Claim, repeat_answer
from attune.domain.json_values import Json
from attune.operations.access.claim_keys import claim_keys
from attune.operations.request_executions import request_executions
from attune.operations.write_audit import Actor, Deed, write_audit
from attune.storage.access import idempotency_keys
from attune.storage.executions import NewExecution
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One request, already checked: its executions are accepted together or not at all."""

    prepared: tuple[NewExecution, ...]
    by: Actor
    claim: Claim | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """What a request became; `created` is None where it repeats an earlier one."""

    ids: tuple[int, ...]
    created: datetime | None = None


async def accept_executions(tx: Tx, submissions: Sequence[Submission]) -> list[Acceptance | AttuneError]:
    """Accept in the order given; a repeated request gets the answer of the first, or the reason why not."""
    claimed = await claim_keys(tx, [submission.claim for submission in submissions])
    fresh = claimed.choose_fresh([submission.claim for submission in submissions])
    new = [submission for submission, is_fresh in zip(submissions, fresh, strict=True) if is_fresh]
    accepted = await _insert(tx, new)
    known = dict(claimed.answered)
    for submission, acceptance in zip(new, accepted, strict=True):
        if submission.claim is not None:
            answer: Json = {"ids": list(acceptance.ids)}
            known[submission.claim.name] = Answered(body_hash=submission.claim.body_hash, answer=answer)
    await idempotency_keys.save_answers(tx, {name: known[name] for name in known if name not in claimed.answered})
    await write_audit(tx, [_deed(*pair) for pair in zip(new, accepted, strict=True)])
    rest = iter(accepted)
    return [
        next(rest) if is_fresh or submission.claim is None else _repeat(submission.claim, known[submission.claim.name])
        for submission, is_fresh in zip(submissions, fresh, strict=True)
    ]


async def _insert(tx: Tx, new: Sequence[Submission]) -> list[Acceptance]:
    if not new:
        return []
    rows = iter(await request_executions(tx, [item for submission in new for item in submission.prepared]))
    shares = [[next(rows) for _ in submission.prepared] for submission in new]
    return [Acceptance(ids=tuple(row.execution_id for row in share), created=share[0].created) for share in shares]


def _deed(submission: Submission, acceptance: Acceptance) -> Deed:
    first, last = acceptance.ids[0], acceptance.ids[-1]
    detail: dict[str, Json] = {"action_ref": submission.prepared[0].action_ref, "last_id": last}
    return Deed(operation="execution.create", resource=f"execution/{first}", by=submission.by, detail=detail)


def _repeat(claim: Claim, answered: Answered | None) -> Acceptance | AttuneError:
    try:
        return read_acceptance(repeat_answer(claim, answered))
    except AttuneError as error:
        return error


def read_acceptance(answer: Json) -> Acceptance:
    """What an earlier request became, from the answer that was kept of it."""
    ids = answer.get("ids") if isinstance(answer, dict) else None
    return Acceptance(ids=tuple(each for each in ids if isinstance(each, int)) if isinstance(ids, list) else ())
