"""Which line an execution belongs to, if any.

Who waited for a slot that its own ancestor holds until it is done would wait for ever: it uses that slot instead.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from attune.domain.json_values import Json
from attune.domain.lines import LineKey, LinePolicy, line_key
from attune.storage import lines
from attune.storage.tx import Tx


class Candidate(Protocol):
    """An execution, new or due."""

    @property
    def action_id(self) -> int: ...
    @property
    def parameters(self) -> Mapping[str, Json]: ...
    @property
    def parent(self) -> int | None: ...
    @property
    def waits_outside(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Belonging:
    """The line to join and its policy; or none, and then perhaps the ancestor whose slot is used."""

    line: tuple[LineKey, LinePolicy] | None = None
    inherits: int | None = None


async def find_lines(tx: Tx, candidates: Sequence[Candidate], *, max_queue_length: int) -> list[Belonging]:
    """Where each belongs, in the order given."""
    joining = [each for each in candidates if not each.waits_outside]
    actions = sorted({each.action_id for each in joining})
    policies = await lines.find_policies(tx, actions, max_queue_length=max_queue_length) if actions else {}
    parents = sorted({each.parent for each in joining if each.parent is not None})
    held = await lines.find_held_by_ancestors(tx, parents) if parents and policies else {}
    return [Belonging() if each.waits_outside else _find(each, policies, held) for each in candidates]


def _find(
    candidate: Candidate, policies: Mapping[int, LinePolicy], held: Mapping[tuple[int, LineKey], int]
) -> Belonging:
    policy = policies.get(candidate.action_id)
    if policy is None:
        return Belonging()
    key = line_key(policy, candidate.parameters)
    holder = None if candidate.parent is None else held.get((candidate.parent, key))
    return Belonging(line=(key, policy)) if holder is None else Belonging(inherits=holder)
