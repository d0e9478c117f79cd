"""Which worker an execution goes to: who can run it, and who has the most room."""

import hashlib
import heapq
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from attune.domain.definitions import Isolation, Runner
from attune.domain.json_values import Json

# A worker whose last heartbeat is older than this many of its own intervals is stale.
STALE_INTERVALS = 3
# Native actions are so short that a worker may hold a few more than it can run, and never idles between two batches.
NATIVE_BUFFER = 0.25

LEVELS = tuple(Isolation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """What an action asks of a worker."""

    runner: Runner
    labels: Mapping[str, Json]
    isolation: Isolation | None

    @property
    def pool(self) -> int:
        """Actions with the same requirements wait for the same workers: their pool, as a signed 64-bit number."""
        text = json.dumps([self.runner, self.labels, self.isolation], sort_keys=True, ensure_ascii=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], signed=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A worker that may be given work: alive, not draining, not cordoned, not marked full."""

    worker_id: int
    instance: str
    runtimes: frozenset[str]
    labels: Mapping[str, Json]
    isolation: Isolation
    capacity: int
    load: int
    # It let a dispatch expire a short while ago: the last choice, but still one.
    avoided: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An execution that wants a worker."""

    execution_id: int
    attempt: int
    action_id: int
    priority: int
    # The worker its last attempt was on; another one is preferred.
    avoid: int | None = None


def can_run(candidate: Candidate, requirements: Requirements) -> bool:
    """Whether a worker has the runtime, the labels and at least the isolation asked for."""
    return (
        requirements.runner in candidate.runtimes
        and all(candidate.labels.get(name) == value for name, value in requirements.labels.items())
        and (requirements.isolation is None or _isolates(candidate, requirements.runner, requirements.isolation))
    )


def _isolates(candidate: Candidate, runner: Runner, demanded: Isolation) -> bool:
    # Whoever makes a container gives the highest level, whatever its other actions get.
    return runner is Runner.CONTAINER or LEVELS.index(candidate.isolation) >= LEVELS.index(demanded)


def room_of(candidate: Candidate, requirements: Requirements) -> int:
    """How many more executions a worker may be given."""
    buffer = int(candidate.capacity * NATIVE_BUFFER) if requirements.runner is Runner.NATIVE else 0
    return max(0, candidate.capacity + buffer - candidate.load)


def total_room(candidates: Sequence[Candidate], requirements: Requirements) -> int:
    """How many executions of a pool fit right now."""
    return sum(room_of(candidate, requirements) for candidate in candidates if can_run(candidate, requirements))


def choose_workers(
    waiting: Sequence[Waiting],
    candidates: Sequence[Candidate],
    requirements: Requirements,
    *,
    draw: Callable[[], float],
) -> dict[int, Candidate]:
    """Give each execution, in the order given, to the worker with the lowest load; ties are drawn.

    An avoided worker gets only what finds no room elsewhere. Those missing from the answer found no room.
    """
    free = [(each, room_of(each, requirements)) for each in candidates if can_run(each, requirements)]
    # The worker's id settles what the draw leaves equal.
    heap = [
        ((each.avoided, each.load / each.capacity), draw(), each.worker_id, room, each.load, each)
        for each, room in free
        if room > 0
    ]
    heapq.heapify(heap)
    chosen: dict[int, Candidate] = {}
    for execution in waiting:
        if not heap:
            break
        taken = heapq.heappop(heap)
        # The worker of the last attempt is passed over once, if anybody else has room.
        if taken[2] == execution.avoid and heap:
            taken = heapq.heapreplace(heap, taken)
        _, _, worker_id, room, load, candidate = taken
        chosen[execution.execution_id] = candidate
        if room > 1:
            rank = (candidate.avoided, (load + 1) / candidate.capacity)
            heapq.heappush(heap, (rank, draw(), worker_id, room - 1, load + 1, candidate))
    return chosen


def take_turns(waiting: Sequence[Waiting]) -> list[Waiting]:
    """The order of placement: priority first, then one of each action in turn, then age."""
    turns: dict[tuple[int, int], int] = {}
    ranked = []
    for execution in sorted(waiting, key=lambda item: item.execution_id):
        key = (execution.priority, execution.action_id)
        turns[key] = turns.get(key, 0) + 1
        ranked.append((-execution.priority, turns[key], execution.execution_id, execution))
    return [entry[3] for entry in sorted(ranked, key=lambda entry: entry[:3])]


def choose_level(available: Collection[Isolation], *, usual: Isolation, demanded: Isolation | None) -> Isolation | None:
    """The weakest level that is at least what is usual and what is demanded; None if there is none."""
    least = max(LEVELS.index(usual), LEVELS.index(demanded) if demanded is not None else 0)
    return next((level for level in LEVELS[least:] if level in available), None)
