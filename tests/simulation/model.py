"""What the lines of an action must be after the operations that were committed, and how the database is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from attune.domain import admission
from attune.domain.adaptive import starting_limit
from attune.domain.admission import Circumstances, Entry, Line, LogRow, Op, Rate, Step
from attune.domain.definitions import Adaptive
from attune.operations.lines.admit_waiting import ADMITTED_MAX
from attune.storage.tx import Tx


@dataclass(kw_only=True)
class Model:
    """The lines of one action by their group, everything ever logged of them, and who ended."""

    limit: int | None = None
    adaptive: Adaptive | None = None
    rate: Rate | None = None
    # Far from the real time: only differences count.
    now: datetime = datetime(2000, 1, 1, tzinfo=UTC)
    workers_live: bool = True
    admitted_max: int = ADMITTED_MAX
    lines: dict[str, Line] = field(default_factory=dict)
    logs: dict[str, list[LogRow]] = field(default_factory=dict)
    group_of: dict[int, str] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)

    def join(self, group: str, execution_id: int, priority: int) -> None:
        limit = self.limit
        if self.adaptive is not None and limit is not None:
            limit = starting_limit(self.adaptive, limit)
        self.lines.setdefault(group, Line(limit=limit, rate=self.rate))
        self.logs.setdefault(group, [])
        self.group_of[execution_id] = group
        self._take(group, lambda line: admission.join(line, execution_id, priority))

    def step(self, groups: Iterable[str], ended: Sequence[int] = ()) -> set[str]:
        """Release, follow the policy and admit; returns the groups that have to be looked at again."""
        done = {execution_id for execution_id in ended if execution_id in self.ended}
        outside = Circumstances(
            now=self.now,
            is_queued=lambda execution_id: execution_id not in self.ended,
            is_runnable=lambda _: self.workers_live,
            admitted_max=self.admitted_max,
        )
        again = set()
        for group in groups:
            self._take(group, lambda line: admission.release(line, done))
            self._take(group, lambda line: admission.follow_policy(line, self.limit, self.adaptive))
            if self._take(group, lambda line: admission.admit(line, outside)).again:
                again.add(group)
        return again

    def pause(self, group: str) -> None:
        self._take(group, admission.pause)

    def resume(self, group: str) -> None:
        self._take(group, admission.resume)

    def adapt(self, group: str, limit: int) -> None:
        self._take(group, lambda line: admission.adapt(line, limit))

    def _take(self, group: str, change: Callable[[Line], Step]) -> Step:
        step = change(self.lines[group])
        self.lines[group] = step.line
        self.logs[group].extend(step.log)
        return step

    @property
    def executions(self) -> list[int]:
        return sorted(self.group_of)

    def let_time_pass(self, hours: int) -> None:
        self.now += timedelta(hours=hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A line as the database has it; the counters beside the entries, and the log with its numbers."""

    line: Line
    log: tuple[LogRow, ...]
    counted: tuple[int, int]
    totals: tuple[int, int, int]
    numbers: tuple[int, ...]
    next_n: int


def expected(model: Model) -> dict[str, Seen]:
    """What must be seen."""
    return {group: _expect(line, model.logs[group]) for group, line in model.lines.items()}


def _expect(line: Line, log: Sequence[LogRow]) -> Seen:
    ops = [row.op for row in log]
    return Seen(
        # The policy has the rate, and admissions are compared by their number.
        line=replace(line, rate=None, recent=()),
        log=tuple(log),
        counted=(len(line.active), len(line.waiting)),
        totals=(ops.count(Op.JOINED), ops.count(Op.RELEASED), ops.count(Op.REMOVED)),
        numbers=tuple(range(1, len(log) + 1)),
        next_n=len(log) + 1,
    )


async def read(tx: Tx, scope: str) -> dict[str, Seen]:
    """What is seen, of every line of a scope."""
    lines = await tx.fetch(
        """
        SELECT id, group_key, max_concurrent, active, waiting, next_seq, next_n, paused, held, total_enqueued,
               total_completed, total_removed, adapted_n
          FROM line WHERE scope = $1
        """,
        scope,
    )
    ids = [line["id"] for line in lines]
    entries: dict[tuple[int, str], list[Entry]] = {}
    for row in await tx.fetch(
        "SELECT line_id, state, execution_id, seq, priority FROM line_entry WHERE line_id = ANY($1)", ids
    ):
        entry = Entry(execution_id=row["execution_id"], seq=row["seq"], priority=row["priority"])
        entries.setdefault((row["line_id"], row["state"]), []).append(entry)
    logs: dict[int, list[tuple[int, LogRow]]] = {}
    for row in await tx.fetch(
        """
        SELECT line_id, n, op, execution_id, seq, priority, limit_in_force, active FROM admission_log
         WHERE line_id = ANY($1) ORDER BY line_id, n
        """,
        ids,
    ):
        who = None
        if row["execution_id"] is not None:
            who = Entry(execution_id=row["execution_id"], seq=row["seq"], priority=row["priority"])
        told = LogRow(op=Op(row["op"]), limit_in_force=row["limit_in_force"], active=row["active"], entry=who)
        logs.setdefault(row["line_id"], []).append((row["n"], told))
    return {
        line["group_key"]: Seen(
            line=Line(
                limit=line["max_concurrent"],
                adapts=line["adapted_n"] is not None,
                active=frozenset(entries.get((line["id"], "active"), [])),
                waiting=frozenset(entries.get((line["id"], "waiting"), [])),
                next_seq=line["next_seq"],
                paused=line["paused"],
                held=line["held"],
            ),
            log=tuple(told for _, told in logs.get(line["id"], [])),
            counted=(line["active"], line["waiting"]),
            totals=(line["total_enqueued"], line["total_completed"], line["total_removed"]),
            numbers=tuple(n for n, _ in logs.get(line["id"], [])),
            next_n=line["next_n"],
        )
        for line in lines
    }


def check_log(log: Sequence[LogRow]) -> None:
    """Judge a log by itself: order, limit, and that everybody who came is somewhere."""
    waiting: set[Entry] = set()
    active: set[Entry] = set()
    for row in log:
        if row.entry is not None and row.op is Op.JOINED:
            waiting.add(row.entry)
        elif row.entry is not None and row.op is Op.ADMITTED:
            assert row.entry == min(waiting, key=lambda entry: entry.place), f"{row} overtook somebody"
            waiting.remove(row.entry)
            active.add(row.entry)
            assert row.limit_in_force is None or len(active) <= row.limit_in_force, f"{row} exceeds the limit"
        elif row.entry is not None:
            (active if row.op is Op.RELEASED else waiting).remove(row.entry)
        assert row.active == len(active), f"{row} miscounts"
