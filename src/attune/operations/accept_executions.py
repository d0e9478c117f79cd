"""Takes requests that arrived together, each from somebody else, into one transaction."""

from collections.abc import Sequence

from attune.domain.errors import AttuneError
from attune.domain.json_values import Json
from attune.operations.acceptance import Acceptance, Submission, repeat_acceptance
from attune.operations.access.claim_keys import claim_keys, keep_answers
from attune.operations.access.write_audit import Deed, write_audit
from attune.operations.lines.join_lines import QueueFull
from attune.operations.request_executions import request_executions
from attune.storage.births import Inserted
from attune.storage.tx import Tx


async def accept_executions(
    tx: Tx, submissions: Sequence[Submission], *, max_queue_length: int, no_worker_grace_seconds: float
) -> list[Acceptance | AttuneError]:
    """Accept in the order given; a repeated request gets the answer of the first, or the reason why not."""
    claimed = await claim_keys(tx, [submission.claim for submission in submissions])
    fresh = claimed.choose_fresh([submission.claim for submission in submissions])
    new = [submission for submission, is_fresh in zip(submissions, fresh, strict=True) if is_fresh]
    prepared = [submission.prepared for submission in new]
    answers = [
        _answer(rows)
        for rows in await request_executions(
            tx, prepared, max_queue_length=max_queue_length, no_worker_grace_seconds=no_worker_grace_seconds
        )
    ]
    used = {
        submission.claim: _document(answer)
        for submission, answer in zip(new, answers, strict=True)
        if submission.claim is not None
    }
    known = dict(claimed.answered) | await keep_answers(tx, used)
    done = [(submission, each) for submission, each in zip(new, answers, strict=True) if isinstance(each, Acceptance)]
    await write_audit(tx, [_deed(*pair) for pair in done])
    rest = iter(answers)
    return [
        next(rest)
        if is_fresh or submission.claim is None
        else repeat_acceptance(submission.claim, known[submission.claim.name])
        for submission, is_fresh in zip(submissions, fresh, strict=True)
    ]


def _document(answer: Acceptance | QueueFull) -> Json:
    return {"ids": list(answer.ids)} if isinstance(answer, Acceptance) else None


def _answer(rows: list[Inserted] | QueueFull) -> Acceptance | QueueFull:
    if isinstance(rows, QueueFull):
        return rows
    return Acceptance(ids=tuple(row.execution_id for row in rows), first=rows[0])


def _deed(submission: Submission, acceptance: Acceptance) -> Deed:
    first, last = acceptance.ids[0], acceptance.ids[-1]
    detail: dict[str, Json] = {"action_ref": submission.prepared[0].action_ref, "last_id": last}
    return Deed(operation="execution.create", resource=f"execution/{first}", by=submission.by, detail=detail)
