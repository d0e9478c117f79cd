"""Takes requests that arrived together, each from somebody else, into one transaction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from attune.domain.errors import Conflict, Invalid
from attune.operations.request_executions import request_executions
from attune.operations.write_audit import Actor, Deed, write_audit
from attune.storage.access import idempotency_keys
from attune.storage.access.idempotency_keys import Answered, KeyName
from attune.storage.executions import Inserted, NewExecution
from attune.storage.tx import Tx


class IdempotencyMismatch(Invalid):
    """A key was sent again with something else."""

    code = "idempotency_mismatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A key that makes a request safe to repeat, and the digest of what is asked."""

    name: KeyName
    body_hash: bytes


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


Outcome = Acceptance | IdempotencyMismatch | Conflict


async def find_accepted(tx: Tx, claim: Claim) -> Acceptance | None:
    """What this key was used for before; raises if it was used for something else."""
    answered = (await idempotency_keys.find_many(tx, [claim.name])).get(claim.name)
    if answered is None:
        return None
    outcome = _repeat(claim, answered)
    if not isinstance(outcome, Acceptance):
        raise outcome
    return outcome


async def accept_executions(tx: Tx, submissions: Sequence[Submission]) -> list[Outcome]:
    """Accept in the order given; a repeated request gets the answer of the first."""
    answered = await _claim_keys(tx, submissions)
    fresh = list(_choose_fresh(submissions, answered))
    rows = await request_executions(tx, [new for submission in fresh for new in submission.prepared])
    accepted = list(_share_out(fresh, rows))
    await _keep_answers(tx, fresh, accepted)
    await write_audit(tx, [_deed(*pair) for pair in zip(fresh, accepted, strict=True)])
    return _answer_all(submissions, fresh, accepted, answered)


async def _claim_keys(tx: Tx, submissions: Sequence[Submission]) -> dict[KeyName, Answered | None]:
    """Claim every key; those that are not ours come back with what is known of them."""
    hashes: dict[KeyName, bytes] = {}
    for submission in submissions:
        if submission.claim is not None:
            hashes.setdefault(submission.claim.name, submission.claim.body_hash)
    if not hashes:
        return {}
    names = sorted(hashes)
    claimed = await idempotency_keys.reserve(tx, names, [hashes[name] for name in names])
    taken = [name for name in names if name not in claimed]
    # A later statement than the claim, so that it sees what the transaction we waited for has committed.
    found = await idempotency_keys.find_many(tx, taken) if taken else {}
    return {name: found.get(name) for name in taken}


def _choose_fresh(submissions: Sequence[Submission], answered: dict[KeyName, Answered | None]) -> Iterator[Submission]:
    """Those to be inserted: without a key, or the first with a key that nobody had."""
    seen: set[KeyName] = set()
    for submission in submissions:
        name = submission.claim.name if submission.claim else None
        if name is None or (name not in answered and name not in seen):
            yield submission
        if name is not None:
            seen.add(name)


def _share_out(fresh: Sequence[Submission], rows: Sequence[Inserted]) -> Iterator[Acceptance]:
    start = 0
    for submission in fresh:
        mine = rows[start : start + len(submission.prepared)]
        start += len(mine)
        yield Acceptance(ids=tuple(row.execution_id for row in mine), created=mine[0].created)


async def _keep_answers(tx: Tx, fresh: Sequence[Submission], accepted: Sequence[Acceptance]) -> None:
    answers = {
        submission.claim.name: {"ids": list(acceptance.ids)}
        for submission, acceptance in zip(fresh, accepted, strict=True)
        if submission.claim is not None
    }
    if answers:
        await idempotency_keys.save_answers(tx, answers)


def _deed(submission: Submission, acceptance: Acceptance) -> Deed:
    first, count = submission.prepared[0], len(acceptance.ids)
    detail = {"action_ref": first.action_ref, "count": count, "last_id": acceptance.ids[-1]}
    return Deed(
        operation="execution.create", resource=f"execution/{acceptance.ids[0]}", by=submission.by, detail=detail
    )


def _answer_all(
    submissions: Sequence[Submission],
    fresh: Sequence[Submission],
    accepted: Sequence[Acceptance],
    answered: dict[KeyName, Answered | None],
) -> list[Outcome]:
    made = dict(zip(map(id, fresh), accepted, strict=True))
    ours = {
        submission.claim.name: Answered(
            body_hash=submission.claim.body_hash, answer={"ids": list(made[id(submission)].ids)}
        )
        for submission in fresh
        if submission.claim is not None
    }
    known = {**answered, **ours}
    return [
        made[id(submission)]
        if submission.claim is None or id(submission) in made
        else _repeat(submission.claim, known.get(submission.claim.name))
        for submission in submissions
    ]


def _repeat(claim: Claim, answered: Answered | None) -> Outcome:
    if answered is None:
        return Conflict("the first request with this Idempotency-Key is not answered yet", code="idempotency_in_flight")
    if answered.body_hash != claim.body_hash:
        return IdempotencyMismatch("this Idempotency-Key was used with another body; take a new key for a new request")
    answer = answered.answer
    ids = answer.get("ids") if isinstance(answer, dict) else None
    return Acceptance(ids=tuple(int(str(each)) for each in ids) if isinstance(ids, list) else ())
