"""What the client's own notes say about a run: order, limits, losses, doubles. Pure.

The client numbers its requests and sends them one after the other, so their numbers are the order they were accepted
in. An execution carries its number as a parameter; that the platform counts right is not taken for granted.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from attune.client.models import Admission, Execution, Status

NUMBER: Final = "n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a client saw of one run."""

    # Ids in the order of the answers that accepted them.
    accepted: Sequence[int]
    executions: Sequence[Execution]
    # Of each action's line: everything it logged about these executions.
    admissions: Mapping[str, Sequence[Admission]]
    limit: int | None
    # Attempts that started more than once, by whatever other witness there is.
    doubled_starts: Iterable[int] = field(default=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How often each promise was broken."""

    inversions: int
    over_limit: int
    lost: int
    duplicated: int
    # Attempts after the first for which nobody who was killed can be blamed.
    unexplained: int = 0

    @property
    def clean(self) -> bool:
        return not (self.inversions or self.over_limit or self.lost or self.duplicated or self.unexplained)


def judge(evidence: Evidence) -> Verdict:
    """Hold what was seen against what is promised."""
    admitted = {ref: [row for row in log if row.op == "admit"] for ref, log in evidence.admissions.items()}
    numbers: dict[int | None, int] = {each.id: number_of(each) for each in evidence.executions}
    return Verdict(
        inversions=sum(
            count_inversions([numbers.get(row.execution_id, 0) for row in log]) for log in admitted.values()
        ),
        over_limit=_count_over_limit(evidence, admitted),
        lost=count_lost(evidence.accepted, evidence.executions),
        duplicated=_count_duplicated(evidence, admitted),
    )


def number_of(execution: Execution) -> int:
    """The number its request had."""
    number = execution.parameters.get(NUMBER)
    return number if isinstance(number, int) else 0


def count_inversions(numbers: Sequence[int]) -> int:
    """How often somebody was admitted right after one who was accepted later."""
    return sum(1 for before, after in pairwise(numbers) if after < before)


def count_overtaken(admitted: Iterable[int], sent: Mapping[int, float], answered: Mapping[int, float]) -> int:
    """How many were admitted after one that was sent only when they had been accepted already.

    Where requests are under way together, this is all that their order means.
    """
    latest, overtaken = -math.inf, 0
    for each in admitted:
        overtaken += answered[each] < latest
        latest = max(latest, sent[each])
    return overtaken


def count_lost(accepted: Sequence[int], executions: Iterable[Execution]) -> int:
    """How many were accepted and not carried out."""
    done = {each.id for each in executions if each.status is Status.SUCCEEDED}
    return len(set(accepted) - done)


def count_overlaps(executions: Iterable[Execution], limit: int) -> int:
    """How many started while the limit was already running."""
    moments: list[tuple[float, int]] = []
    for each in executions:
        if each.started_at is not None and each.ended_at is not None:
            moments += [(each.started_at.timestamp(), 1), (each.ended_at.timestamp(), -1)]
    running = above = 0
    # At the same instant an end comes first: its slot may be given away in the transaction that ends it.
    for _, change in sorted(moments):
        running += change
        above += change > 0 and running > limit
    return above


def _count_over_limit(evidence: Evidence, admitted: Mapping[str, Sequence[Admission]]) -> int:
    limit = evidence.limit
    if limit is None:
        return 0
    logged = sum(
        1 for log in admitted.values() for row in log if (row.active or 0) > min(row.limit_in_force or 0, limit)
    )
    by_action: defaultdict[str, list[Execution]] = defaultdict(list)
    for each in evidence.executions:
        by_action[each.action_ref].append(each)
    return logged + sum(count_overlaps(those, limit) for those in by_action.values())


def _count_duplicated(evidence: Evidence, admitted: Mapping[str, Sequence[Admission]]) -> int:
    """Executions that started or were admitted twice, and requests that became two executions."""
    admissions = Counter(row.execution_id for log in admitted.values() for row in log)
    twice = {each for each, times in admissions.items() if times > 1} | set(evidence.doubled_starts)
    requests = Counter(number_of(each) for each in evidence.executions)
    return len(twice) + sum(times - 1 for times in requests.values())
