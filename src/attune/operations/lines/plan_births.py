"""How the executions of one request begin: outside any line, in one, or cancelled by its policy."""

from collections.abc import Sequence

from attune.domain.execution import Failure, Status
from attune.domain.lines import Joining, LinePolicy, LineState, Verdict, decide_joining
from attune.operations.lines.find_lines import Belonging
from attune.operations.lines.join_lines import LockedLines, QueueFull
from attune.storage.births import Birth, NewExecution


def plan_births(
    locked: LockedLines, places: Sequence[Belonging], new: Sequence[NewExecution]
) -> list[Birth] | QueueFull:
    """How the executions of one request begin; if one finds its line full, none of them does."""
    states, counts = dict(locked.states), dict(locked.counts)
    births = []
    for place, item in zip(places, new, strict=True):
        if place.line is None:
            births.append(Birth(new=item, inherits=place.inherits))
            continue
        key = place.line[0]
        joining = decide_joining(states[key], locked.policies[key], now=locked.now)
        if joining.verdict is Verdict.FULL:
            return QueueFull(joining.reason)
        births.append(_birth(item, states[key], joining, locked.policies[key]))
        states[key] = joining.line
        if joining.verdict is Verdict.JOINS:
            counts[key] = counts.get(key, 0) + 1
    locked.states.update(states)
    locked.counts.update(counts)
    return births


def _birth(item: NewExecution, before: LineState, joining: Joining, policy: LinePolicy) -> Birth:
    if joining.verdict is Verdict.CANCELLED:
        failure = Failure(code="policy_limit", message=joining.reason, by=f"policy {policy.ref}")
        return Birth(new=item, status=Status.CANCELLED, failure=failure)
    return Birth(new=item, status=Status.QUEUED, line_id=before.line_id, line_seq=before.next_seq)
