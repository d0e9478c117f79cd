"""Collects what is written down about a run, when it is over: rows, logs, the ledger, and what still runs."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

import asyncpg
import psutil

from tests.chaos.judge import Ended, Record
from tests.chaos.stage import Stage
from tests.chaos.workload import Told
from tests.witness.ledger import Ledger
from tests.witness.line_log import LogRow

# What may take longest is a message that the broker lost: it is missed after a minute, by a look once a minute.
QUIESCE_SECONDS = 240.0
LOOK_SECONDS = 0.5
WHY_MAX = 5
# Sweeps that only act when something went wrong before; the others keep house, or end what is asked for to be ended.
RECOVERY = frozenset({"lost workers", "scheduled timeout", "own ttl", "deadline", "state audit", "no worker"})
TABLES = (
    *("execution", "execution_history", "admission_log", "line", "line_entry", "assignment", "unplaced", "outbox"),
    *("worker", "late_result", "dead_letter", "audit_log", "idempotency_key", "action"),
)
LEDGER = "ledger.txt"


async def quiesce(stage: Stage, tend: Callable[[], Awaitable[None]]) -> tuple[list[str], float]:
    """Wait until everything ended and every message was carried; what did not in time, and how long it took.

    An action that lost several workers in a row is quarantined, which waits for a person: `tend` is that person.
    """
    begin = monotonic()
    async with asyncpg.create_pool(stage.postgres.url, min_size=1, max_size=2) as pool:
        while monotonic() < begin + QUIESCE_SECONDS:
            if not await _left(pool):
                return [], monotonic() - begin
            await tend()
            await asyncio.sleep(LOOK_SECONDS)
        return await _explain(stage, pool), monotonic() - begin


async def _left(pool: asyncpg.Pool) -> int:
    return int(
        await pool.fetchval(
            """
            SELECT (SELECT count(*) FROM attune.execution WHERE ended_at IS NULL)
                 + (SELECT count(*) FROM attune.outbox) + (SELECT count(*) FROM attune.line_entry)
            """
        )
    )


async def _explain(stage: Stage, pool: asyncpg.Pool) -> list[str]:
    rows = await pool.fetch("SELECT id, status FROM attune.execution WHERE ended_at IS NULL ORDER BY id")
    messages = await pool.fetch("SELECT topic, count(*) AS count FROM attune.outbox GROUP BY topic")
    found = [f"{row['id']} is {row['status']} still" for row in rows[WHY_MAX:]]
    for row in rows[:WHY_MAX]:
        why = await stage.platform.run("why", str(row["id"]), check=False)
        found.append(f"{row['id']} is {row['status']} still: {(why.out + why.err).strip()}")
    return found + [f"{row['count']} messages of {row['topic']} are not carried" for row in messages]


async def collect(stage: Stage, told: Sequence[Told], *, waiting: Sequence[str], in_peace: bool) -> Record:
    """Ask every witness; nobody writes any more."""
    async with asyncpg.create_pool(stage.postgres.url, min_size=1, max_size=1) as pool:
        executions = await pool.fetch(
            """
            SELECT id, action_ref, status, error ->> 'code' AS code, attempt, tries, created, ended_at
              FROM attune.execution ORDER BY id
            """
        )
        admissions = await _admissions(pool)
        leftovers = await _leftovers(pool)
    check = await stage.platform.run("check", "-o", "json", check=False)
    return Record(
        told=told,
        executions=[Ended(**dict(row)) for row in executions],
        ledger=Ledger(stage.folder / LEDGER).lines(),
        admissions=admissions,
        leftovers={**leftovers, "processes of actions": len(_left_running(stage))},
        waiting=waiting,
        mended=_mended(stage.platform.home / "logs"),
        check="" if check.code == 0 else check.out,
        deadlocks=_deadlocks(stage.postgres.folder / "output.log"),
        errors=_errors(stage.platform.home / "logs"),
        in_peace=in_peace,
    )


async def _admissions(pool: asyncpg.Pool) -> dict[int, list[LogRow]]:
    found: dict[int, list[LogRow]] = defaultdict(list)
    for row in await pool.fetch(
        """
        SELECT line_id, n, op, execution_id, priority, limit_in_force, at FROM attune.admission_log
         ORDER BY line_id, n
        """
    ):
        found[row["line_id"]].append(LogRow(**dict(row)))
    return found


async def _leftovers(pool: asyncpg.Pool) -> dict[str, int]:
    """Slots of lines, rooms of workers, places in a list: nobody holds one when everything has ended."""
    row = await pool.fetchrow(
        """
        SELECT (SELECT count(*) FROM attune.line_entry) AS "line_entry",
               (SELECT COALESCE(sum(active + waiting), 0) FROM attune.line) AS "line.active and line.waiting",
               (SELECT count(*) FROM attune.assignment) AS "assignment",
               (SELECT count(*) FROM attune.unplaced) AS "unplaced"
        """
    )
    return {} if row is None else {name: int(count) for name, count in row.items()}


def _left_running(stage: Stage) -> list[int]:
    """Processes that run where actions run."""
    work = str(stage.platform.home / "run" / "work")
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.cwd().startswith(work) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found


def _mended(logs: Path) -> dict[str, int]:
    """What recovery had to do, as the executors said it themselves."""
    mended: Counter[str] = Counter()
    for path in sorted(logs.glob("executor-*.log")):
        for line in path.read_text(errors="replace").splitlines():
            if '"sweep.acted"' in line:
                with suppress(ValueError):
                    said = json.loads(line)
                    mended[said["sweep"]] += int(said["executions"]) if said["sweep"] in RECOVERY else 0
    return dict(+mended)


def _deadlocks(log: Path) -> list[str]:
    """Locks are taken in one order, so PostgreSQL never has to break a circle."""
    return [line for line in log.read_text(errors="replace").splitlines() if "deadlock detected" in line]


def _errors(logs: Path) -> dict[str, int]:
    found: Counter[str] = Counter()
    for path in logs.glob("*.log"):
        for line in path.read_text(errors="replace").splitlines():
            if '"level":"error"' in line or '"level":"critical"' in line:
                with suppress(ValueError):
                    said = json.loads(line)
                    found[f"{said['service']} {said['event']} {said.get('task') or _raised(said)}".strip()] += 1
    return dict(found)


def _raised(said: Mapping[str, str]) -> str:
    """What kind of error it was: the last line of a trace begins with it."""
    return said.get("exception", "").strip().rpartition("\n")[2].partition(":")[0]


async def keep_tables(stage: Stage, folder: Path) -> None:
    """Everything a database knows about a run, as CSV."""
    folder.mkdir(exist_ok=True)
    async with asyncpg.create_pool(stage.postgres.url, min_size=1, max_size=1) as pool:
        for table in TABLES:
            await pool.copy_from_query(
                f"SELECT * FROM attune.{table}",  # noqa: S608  names of our own
                output=folder / f"{table}.csv",
                format="csv",
                header=True,
            )
