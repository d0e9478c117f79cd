"""What must be true after every commit and every start, judged from outside: by moves, rows, logs and the ledger.

The names are those of the invariants that `attune check` asks about, where there is one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from attune.domain.admission import Entry, LogRow, Op
from attune.domain.definitions import Isolation
from attune.domain.execution import ASSIGNED, TERMINAL, Status, may_move
from attune.domain.messages import Message
from attune.domain.placement import Candidate, can_run, room_of
from tests.simulation.whole.rows import (
    ActionRow,
    AssignmentRow,
    EntryRow,
    ExecutionRow,
    LineRow,
    PolicyRow,
    UnplacedRow,
    WorkerRow,
)
from tests.simulation.whole.scripts import Ledger, Script
from tests.simulation.whole.store import Move, Session, Store

HAND_BACK = ("worker had no free slot", "worker is shutting down", "worker is being drained")
# Once, a hint may be on its way; twice, by chance again.
IDLE_LOOKS = 4
# Long after a lease and its grace, on every replica's slowest sweep.
NOTICED_SECONDS = 60.0
# States in which an execution that was admitted holds its slot.
HOLDS_SLOT = frozenset({Status.SCHEDULING, Status.SCHEDULED, Status.RUNNING, Status.CANCELING})


class Violation(AssertionError):
    """Something that must never happen did."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


@dataclass(slots=True)
class _LineModel:
    waiting: dict[int, Entry] = field(default_factory=dict)
    active: dict[int, Entry] = field(default_factory=dict)
    paused: bool = False


@dataclass(kw_only=True)
class Judge:
    """Remembers what it needs, and nothing of what the store believes."""

    store: Store
    ledger: Ledger
    placements_max: int
    ended: dict[int, Status] = field(default_factory=dict)
    starts: set[tuple[int, int]] = field(default_factory=set)
    placements: set[tuple[int, int]] = field(default_factory=set)
    born: dict[int, float] = field(default_factory=dict)
    # Whose turn it is among equals: by acceptance, or by the moment of joining where that came later.
    order: dict[int, int] = field(default_factory=dict)
    lines: dict[int, _LineModel] = field(default_factory=dict)
    blamed: Counter[int] = field(default_factory=Counter)
    # Messages whose effect is committed, or that are kept elsewhere.
    settled: set[int] = field(default_factory=set)
    attempts: int = 0
    # Since when it could be seen that somebody waits for room.
    waits_since: dict[int, float] = field(default_factory=dict)
    # Who waited without need, and how often in a row.
    idle: Counter[tuple[str, int]] = field(default_factory=Counter)

    def see_commit(self, session: Session) -> None:
        self.settled |= session.settled
        for move in session.history:
            self._see_move(move)
        for (table, id_), row in session.written.items():
            if table == "execution" and row is not None and session.bases[table, id_] is None:
                self._see_birth(row)
        for line_id, logged in session.log:
            self._see_log(session, line_id, logged)
        for move in session.history:
            self._see_force(move, session)
            self._see_reporter(move, session)
        self._see_newcomers(session)
        for (table, id_), row in session.written.items():
            if table == "unplaced" and row is None:
                self.waits_since.pop(id_, None)
            elif table == "unplaced":
                self.waits_since[id_] = self.store.clock
        self._see_rows(session)

    def _see_rows(self, session: Session) -> None:
        changed = {id_ for table, id_ in session.written if table in {"execution", "assignment", "unplaced", "entry"}}
        for id_ in sorted(changed):
            self._see_execution(id_)
        for table, id_ in session.written:
            if table == "line":
                self._see_line(id_)
            elif table == "assignment" and session.bases[table, id_] is None:
                self._see_placement(id_)

    # Moves

    def _see_move(self, move: Move) -> None:
        id_ = move.execution_id
        if id_ in self.ended:
            raise Violation("terminal_never_left", f"execution {id_} ended as {self.ended[id_]} and then {move.after}")
        if move.before is not None and not may_move(move.before, move.after):
            raise Violation("moves_are_legal", f"execution {id_}: {move.before} → {move.after}")
        key = (id_, move.attempt)
        if move.after is Status.SCHEDULED:
            self._once(self.placements, key, "one_placement_per_attempt")
        if move.after is Status.RUNNING:
            self._once(self.starts, key, "one_start_per_attempt")
            self.attempts += 1
            self.blamed[id_] = 0
        if move.before is Status.SCHEDULED and move.after in {Status.SCHEDULING, Status.FAILED}:
            self.blamed[id_] += move.reason not in HAND_BACK
        if move.code == "placement_exhausted" and self.blamed[id_] < self.placements_max:
            raise Violation(
                "patience_is_spent_by_fault_only", f"execution {id_} after {self.blamed[id_]} lost placements"
            )
        if move.after is Status.SUCCEEDED and not self.ledger.finished_well(id_, move.attempt):
            raise Violation("result_is_of_its_attempt", f"execution {id_}: attempt {move.attempt} did not succeed")
        if move.after in TERMINAL:
            self.ended[id_] = move.after

    def _see_force(self, move: Move, session: Session) -> None:
        """Who ends by force takes along whoever was there and runs on its slot."""
        if move.after is not Status.CANCELLED or not move.reason.endswith("by force"):
            return
        id_ = move.execution_id
        rows: list[ExecutionRow] = list(self.store.table("execution").values())
        below = [row.id for row in rows if row.inherits == id_ and not row.ended_at and self.born[row.id] < session.now]
        if below:
            raise Violation("slot_owner_alive", f"executions {below} run on the slot of {id_}, who ended by force")

    def _see_reporter(self, move: Move, session: Session) -> None:
        """What a worker reports is about an attempt that is its own."""
        before: AssignmentRow | None = session.bases.get(("assignment", move.execution_id))
        if before is None or move.before not in {Status.RUNNING, Status.CANCELING}:
            return
        worker: WorkerRow = self.store.table("worker")[before.worker_id]
        if move.actor.startswith("worker-") and move.actor != worker.name:
            raise Violation(
                "result_is_of_its_attempt", f"execution {move.execution_id}: {move.actor} ended what {worker.name} runs"
            )

    def _once(self, seen: set[tuple[int, int]], key: tuple[int, int], name: str) -> None:
        if key in seen:
            raise Violation(name, f"execution {key[0]}, attempt {key[1]}")
        seen.add(key)

    def _see_birth(self, row: ExecutionRow) -> None:
        self.born[row.id] = self.store.clock
        if row.not_before is None:
            self.order[row.id] = len(self.order)

    # Rows

    def _see_execution(self, id_: int) -> None:
        row: ExecutionRow | None = self.store.table("execution").get(id_)
        if row is None:
            raise Violation("accepted_is_kept", f"execution {id_} vanished")
        assignment: AssignmentRow | None = self.store.table("assignment").get(id_)
        unplaced: UnplacedRow | None = self.store.table("unplaced").get(id_)
        if row.status in ASSIGNED and (assignment is None or assignment.attempt != row.attempt):
            raise Violation("assigned_has_assignment", f"execution {id_} is {row.status}")
        if row.status not in ASSIGNED and assignment is not None:
            raise Violation("assignment_has_execution", f"execution {id_} is {row.status}")
        if (row.status is Status.SCHEDULING) != (unplaced is not None):
            raise Violation("scheduling_is_unplaced", f"execution {id_} is {row.status}")
        if row.status in {Status.RUNNING, Status.CANCELING} and (assignment is None or assignment.lease_until is None):
            raise Violation("started_has_lease", f"execution {id_}")
        if assignment is not None and row.pinned and assignment.worker_id != row.worker:
            raise Violation("pinned_stays", f"execution {id_} is on worker {assignment.worker_id}")
        if row.pinned and row.status is Status.SCHEDULING:
            raise Violation("pinned_stays", f"execution {id_} waits for any worker")
        self._see_slot(row)

    def _see_slot(self, row: ExecutionRow) -> None:
        entry: EntryRow | None = self.store.table("entry").get(row.id)
        if row.status is Status.QUEUED and (entry is None or entry.active):
            raise Violation("queued_has_entry", f"execution {row.id}")
        admitted = row.status in HOLDS_SLOT and row.line_id is not None and row.inherits is None
        if admitted and (entry is None or not entry.active):
            raise Violation("admitted_holds_slot", f"execution {row.id} is {row.status}")
        if row.status is Status.REQUESTED and entry is not None:
            raise Violation("slot_owner_alive", f"execution {row.id} waits outside and holds a place")

    def _see_newcomers(self, session: Session) -> None:
        """Who waited for room before this transaction began is not passed by who has just come."""
        arrived = {Status.REQUESTED, Status.QUEUED}
        for move in session.history:
            if move.after is not Status.SCHEDULED or move.before not in arrived:
                continue
            row: ExecutionRow = self.store.table("execution")[move.execution_id]
            actions = self.store.table("action")
            pool = actions[row.action].pool
            for other in self.store.table("unplaced").values():
                free = actions[other.action_id].quarantined_at is None
                since = self.waits_since.get(other.id, session.now)
                if other.pool == pool and since < session.now and free and not row.pinned:
                    raise Violation("nobody_passes_who_waits", f"execution {row.id} was placed before {other.id}")

    def _see_placement(self, id_: int) -> None:
        assignment: AssignmentRow | None = self.store.table("assignment").get(id_)
        if assignment is None or assignment.worker_instance is None:
            return
        worker: WorkerRow | None = self.store.table("worker").get(assignment.worker_id)
        if worker and worker.instance == assignment.worker_instance and worker.status in {"draining", "inactive"}:
            raise Violation("nothing_slips_behind_a_drain", f"execution {id_} placed on {worker.name}")

    # Lines

    def _see_line(self, id_: int) -> None:
        row: LineRow | None = self.store.table("line").get(id_)
        if row is None:
            self.lines.pop(id_, None)
            return
        entries = [each for each in self.store.table("entry").values() if each.line_id == id_]
        active = sum(each.active for each in entries)
        if (row.active, row.waiting) != (active, len(entries) - active):
            raise Violation(
                "line_counts_agree", f"line {id_}: {row.active}, {row.waiting} for {active}, {len(entries)}"
            )
        model = self.lines.setdefault(id_, _LineModel())
        if {each.id for each in entries if each.active} != model.active.keys():
            raise Violation("line_log_active", f"line {id_}")

    def _see_log(self, session: Session, line_id: int, logged: LogRow) -> None:
        model = self.lines.setdefault(line_id, _LineModel())
        if logged.entry is None:
            model.paused = session.written["line", line_id].paused
            return
        id_ = logged.entry.execution_id
        if logged.op in {Op.JOINED, Op.REJOINED}:
            if id_ not in self.order or (logged.op is Op.REJOINED and not self._keeps_place(id_)):
                self.order[id_] = len(self.order)
            model.waiting[id_] = logged.entry
            self._see_ancestors(model, id_)
        elif logged.op is Op.ADMITTED:
            self._see_admission(model, line_id, logged)
        elif (model.active if logged.op is Op.RELEASED else model.waiting).pop(id_, None) is None:
            raise Violation("line_log_balances", f"line {line_id}: execution {id_} left without being there")

    def _see_ancestors(self, model: _LineModel, id_: int) -> None:
        """Nobody waits for a slot that its own ancestor holds until it is done."""
        row: ExecutionRow = self.store.table("execution")[id_]
        if row.parent in model.active:
            raise Violation("nobody_waits_for_its_ancestor", f"execution {id_} waits for the slot of {row.parent}")

    def _keeps_place(self, id_: int) -> bool:
        """A retry returns to its place; a delayed start has none yet."""
        row: ExecutionRow = self.store.table("execution")[id_]
        policies: list[PolicyRow] = [
            each for each in self.store.table("policy").values() if each.action_id == row.action
        ]
        return bool(policies) and policies[0].keeps_place and row.tries > 0

    def _see_admission(self, model: _LineModel, line_id: int, logged: LogRow) -> None:
        entry = logged.entry
        assert entry is not None
        id_ = entry.execution_id
        if id_ not in model.waiting:
            raise Violation("line_log_balances", f"line {line_id}: execution {id_} admitted without waiting")
        first = min(model.waiting.values(), key=lambda each: (-each.priority, self.order[each.execution_id]))
        if first.execution_id != id_:
            raise Violation("line_order", f"line {line_id}: {id_} was let past {first.execution_id}")
        if model.paused:
            raise Violation("line_pause", f"line {line_id}: {id_} was admitted")
        model.active[id_] = model.waiting.pop(id_)
        if logged.limit_in_force is not None and len(model.active) > logged.limit_in_force:
            raise Violation("line_limit", f"line {line_id}: {len(model.active)} of {logged.limit_in_force}")

    def see_acknowledgement(self, message: Message) -> None:
        if message.id not in self.settled:
            raise Violation(
                "acknowledged_after_commit", f"{message.type} {message.items} would be lost with its process"
            )

    def see_time(self) -> None:
        """Asked now and then when nothing is wrong any more."""
        late = self.store.clock - NOTICED_SECONDS
        for row in self.store.table("assignment").values():
            if row.lease_until is not None and row.lease_until < late:
                raise Violation("lost_is_noticed", f"execution {row.id}: its lease ran out at {row.lease_until:g}")

    def see_idleness(self) -> None:
        """Asked now and then where nothing goes wrong: nobody waits beside a free slot or beside room for long."""
        idle = {("no_idle_slot", line.id) for line in self.store.table("line").values() if _could_admit(line)}
        crowded = {row.pool for row in self.store.table("unplaced").values()}
        with_room = {
            action.pool
            for action in self.store.table("action").values()
            if action.pool in crowded and self._has_room(action)
        }
        actions = self.store.table("action")
        idle |= {
            ("nobody_waits_beside_room", row.id)
            for row in self.store.table("unplaced").values()
            if row.pool in with_room and actions[row.action_id].quarantined_at is None
        }
        self.idle = Counter({each: self.idle[each] + 1 for each in idle})
        for (name, id_), looks in sorted(self.idle.items()):
            if looks >= IDLE_LOOKS:
                raise Violation(name, f"{id_} for a while already")

    def _has_room(self, action: ActionRow) -> bool:
        loads = Counter(row.worker_id for row in self.store.table("assignment").values())
        return any(
            worker.status == "active"
            and not worker.cordoned
            and not worker.marked_full
            and can_run(candidate, action.requirements)
            and room_of(candidate, action.requirements) > 0
            for worker in self.store.table("worker").values()
            for candidate in [_as_candidate(worker, loads[worker.id])]
        )

    # Starts

    def see_spawn(self, script: Script) -> None:
        id_ = script.execution_id
        if (id_, script.attempt) not in self.starts:
            raise Violation("start_was_placed", f"execution {id_}: a script of attempt {script.attempt}, never started")
        others = [each for each in self.ledger.scripts if each.execution_id == id_ and each is not script]
        if any(each.attempt == script.attempt for each in others):
            raise Violation("one_start_per_attempt", f"a second script of execution {id_}, attempt {script.attempt}")
        for other in others:
            if other.alive and not other.excuse and not script.excuse:
                text = f"execution {id_}: attempts {other.attempt} and {script.attempt} both run"
                raise Violation("no_two_live_scripts", text)


def _could_admit(line: LineRow) -> bool:
    free = line.limit is None or line.active < line.limit
    return line.waiting > 0 and free and not line.paused and not line.held


def _as_candidate(worker: WorkerRow, load: int) -> Candidate:
    return Candidate(
        worker_id=worker.id,
        instance="",
        runtimes=worker.runtimes,
        labels=worker.labels,
        isolation=Isolation.NONE,
        capacity=worker.capacity,
        load=load,
    )
