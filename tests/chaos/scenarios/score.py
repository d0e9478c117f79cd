"""What every witness says of a storm that has passed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import asyncpg

from tests.chaos.scenarios.storm import Storm
from tests.chaos.scenarios.tracks import Track
from tests.witness.ledger import END, START, Ledger
from tests.witness.line_log import (
    LineStory,
    LogRow,
    find_excess,
    find_idle_slots,
    find_inversions,
    find_lost,
)

IDLE_SECONDS_MAX = 1.0
SHOWN_MAX = 5


@dataclass(slots=True, kw_only=True)
class Score:
    """Faults by their kind, and what the storm did."""

    executions: int
    lines: int
    done: Mapping[str, int]
    statuses: Mapping[str, int]
    attempts: Mapping[int, int]
    # Why attempts were not the last, though no worker died.
    placed_again: Mapping[str, int]
    inversions: list[str] = field(default_factory=list)
    excess: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    overlaps: list[str] = field(default_factory=list)
    wrong_ends: list[str] = field(default_factory=list)
    deadlocks: list[str] = field(default_factory=list)
    lock_timeouts: int = 0
    gaps: list[float] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        """Whatever must not be, idle slots apart."""
        kinds = (self.inversions, self.excess, self.lost, self.doubled, self.overlaps, self.wrong_ends, self.deadlocks)
        return [fault for kind in kinds for fault in kind[:SHOWN_MAX]]

    @property
    def report(self) -> dict[str, object]:
        """For people."""
        gaps = sorted(self.gaps) or [0.0]
        return {
            "executions": self.executions,
            "lines": self.lines,
            "done": dict(self.done),
            "statuses": dict(self.statuses),
            "attempts": dict(self.attempts),
            "placed_again": dict(self.placed_again),
            "inversions": len(self.inversions),
            "over_limit": len(self.excess) + len(self.overlaps),
            "lost": len(self.lost),
            "doubled": len(self.doubled),
            "deadlocks": len(self.deadlocks),
            "lock_timeouts": self.lock_timeouts,
            "idle_over_1s": sum(gap > IDLE_SECONDS_MAX for gap in gaps),
            "idle_seconds": {"p50": gaps[len(gaps) // 2], "p99": gaps[len(gaps) * 99 // 100], "max": gaps[-1]},
            "faults": self.faults,
        }


async def judge(storm: Storm) -> Score:
    """Ask the log, the client, the ledger and the rows."""
    executions = await storm.database.fetch(
        "SELECT id, status, attempt, ended_at, error ->> 'code' AS code FROM attune.execution"
    )
    score = Score(
        executions=sum(len(track.accepted) for track in storm.tracks),
        lines=len(storm.tracks),
        done=storm.done,
        statuses=Counter(row["status"] for row in executions),
        attempts=Counter(row["attempt"] for row in executions),
        placed_again=await _placed_again(storm.database),
    )
    ended = {row["id"]: row["ended_at"] for row in executions}
    for story in await _stories(storm, ended):
        score.inversions += find_inversions(story)
        score.excess += find_excess(story)
        score.gaps += find_idle_slots(story)
    codes = {row["id"]: (row["status"], row["code"]) for row in executions}
    for track in storm.tracks:
        score.wrong_ends += _wrong_ends(track, codes)
    score.lost = await _lost(storm, ended)
    _ask_ledger(storm, score)
    _ask_database_log(storm, score)
    return score


async def _placed_again(database: asyncpg.Pool) -> dict[str, int]:
    rows = await database.fetch(
        """
        SELECT reason, count(*) AS times FROM attune.execution_history
         WHERE from_status IN ('scheduled', 'running') AND to_status IN ('scheduling', 'requested') GROUP BY reason
        """
    )
    return {row["reason"]: row["times"] for row in rows}


async def _stories(storm: Storm, ended: Mapping[int, datetime]) -> list[LineStory]:
    logs = await _logs(storm.database)
    pauses = await _pauses(storm.database)
    track_of = {execution_id: track for track in storm.tracks for execution_id in track.accepted}
    found = []
    for line_id, rows in logs.items():
        first = next(row.execution_id for row in rows if row.execution_id is not None)
        track = track_of[first]
        found.append(
            LineStory(
                rows=rows, accepted=track.accepted, limits=track.limits, ended=ended, pauses=pauses.get(line_id, ())
            )
        )
    return found


async def _logs(database: asyncpg.Pool) -> dict[int, list[LogRow]]:
    rows = await database.fetch(
        """
        SELECT line_id, n, op, execution_id, priority, limit_in_force, at FROM attune.admission_log
         ORDER BY line_id, n
        """
    )
    logs: dict[int, list[LogRow]] = defaultdict(list)
    for row in rows:
        logs[row["line_id"]].append(LogRow(**dict(row)))
    return logs


async def _pauses(database: asyncpg.Pool) -> dict[int, list[tuple[datetime, datetime]]]:
    """From each pause to the resume that followed, as the audit has them."""
    rows = await database.fetch(
        """
        SELECT operation, resource, at FROM attune.audit_log
         WHERE operation IN ('line.pause', 'line.resume') ORDER BY id
        """
    )
    begun: dict[int, datetime] = {}
    found: dict[int, list[tuple[datetime, datetime]]] = defaultdict(list)
    for row in rows:
        line_id = int(row["resource"].rpartition("/")[2])
        if row["operation"] == "line.pause":
            begun[line_id] = row["at"]
        else:
            found[line_id].append((begun.pop(line_id), row["at"]))
    return found


async def _lost(storm: Storm, ended: Mapping[int, datetime]) -> list[str]:
    """Over all lines together, because a line that stood idle for long may have been made again."""
    rows = [row for log in (await _logs(storm.database)).values() for row in log]
    accepted = [execution_id for track in storm.tracks for execution_id in track.accepted]
    found = find_lost(LineStory(rows=rows, accepted=accepted, limits=()))
    found += [f"{each} was accepted and is not there" for each in accepted if each not in ended]
    return found + [f"{each} exists and nobody was told" for each in ended.keys() - set(accepted)]


def _wrong_ends(track: Track, ends: Mapping[int, tuple[str, str | None]]) -> list[str]:
    """Everybody succeeded, unless the client itself cancelled it or cleared the line."""
    found = []
    for place, execution_id in enumerate(track.accepted):
        status, code = ends.get(execution_id, ("gone", None))
        cancelled = execution_id in track.cancel_asked or (code == "line_cleared" and place < track.cleared)
        if status != "succeeded" and not (status == "cancelled" and cancelled):
            found.append(f"{execution_id} ended as {status} ({code})")
    return found


def _ask_ledger(storm: Storm, score: Score) -> None:
    ledger = Ledger(storm.platform.home / "ledger.txt")
    score.doubled = [f"{execution}, attempt {attempt}, started twice" for execution, attempt in ledger.doubled_starts()]
    lines = ledger.lines()
    # Who was stopped half way never says that it ended.
    whole = {line.execution for line in lines if line.what == END}
    number_of = {each: number for number, track in enumerate(storm.tracks) for each in track.accepted}
    running: Counter[int] = Counter()
    for line in lines:
        if line.execution not in whole:
            continue
        number = number_of[line.execution]
        running[number] += 1 if line.what == START else -1
        highest = max(storm.tracks[number].limits)
        if running[number] > highest:
            score.overlaps.append(f"{running[number]} ran at once where the limit never was above {highest}")
    score.lost += _never_ran(storm.tracks, score, {line.execution for line in lines})


def _ask_database_log(storm: Storm, score: Score) -> None:
    """Locks are taken in one order, so PostgreSQL never has to break a circle."""
    complaints = (storm.platform.home / "logs" / "postgres.log").read_text(errors="replace").splitlines()
    score.deadlocks = [line for line in complaints if "deadlock detected" in line]
    score.lock_timeouts = sum("due to lock timeout" in line for line in complaints)


def _never_ran(tracks: Sequence[Track], score: Score, started: set[int]) -> list[str]:
    """What succeeded must have said so itself."""
    wrong = {fault.partition(" ")[0] for fault in score.wrong_ends}
    return [
        f"{execution_id} succeeded without having run"
        for track in tracks
        for execution_id in track.accepted[track.cleared :]
        if execution_id not in started | track.cancel_asked and str(execution_id) not in wrong
    ]
