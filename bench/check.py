"""Measures `attune check` on a database that has lived.

    python -m bench.check [--ended 1000000] [--waiting 100000] [--without-all]

Prints the seconds of each check: of everything, right after it (nothing new), and with a thousand new executions; and
the time that the database's processor spent on each of the three, which a busy machine does not change.
"""

import argparse
import asyncio
import os
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from attune.operations.upkeep.check_invariants import CheckReport, check_invariants
from attune.runtime.postgres_server import PostgresServer, ServerPlan
from attune.storage.database import Database
from attune.storage.migrate import migrate
from attune.storage.upkeep import checkpoints
from tests.witness.past import make_past

NEW = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A check and what it cost the database."""

    report: CheckReport
    processor_seconds: float


async def measure(database: Database, *, everything: bool = False) -> Measured:
    """One check in its snapshot."""
    async with database.snapshot(application="bench") as tx:
        pid = await tx.fetch_value("SELECT pg_backend_pid()")
        before = processor_seconds(pid)
        report = await check_invariants(tx, everything=everything)
        return Measured(report=report, processor_seconds=processor_seconds(pid) - before)


def processor_seconds(pid: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def skip_all(database: Database) -> Measured:
    """Take the past for verified, as make_past made it."""
    async with database.snapshot(application="bench") as tx:
        await checkpoints.try_move(tx)
    return await measure(database)


async def add_new(database: Database) -> None:
    """Executions that were requested and ended since the last check."""
    async with database.snapshot(application="bench") as tx:
        await tx.execute(
            """
            INSERT INTO execution (action, action_ref, runner, status)
            SELECT 1, 'demo.work', 'native', 'requested' FROM generate_series(1, $1::int)
            """,
            NEW,
        )
        await tx.execute(
            """
            UPDATE execution SET status = 'cancelled', ended_at = now() WHERE status = 'requested' AND ended_at IS NULL
            """
        )


async def run(home: Path, *, ended: int, waiting: int, with_all: bool) -> None:
    """Make the past, then measure."""
    server = PostgresServer(
        ServerPlan(
            home=home, data=home / "data", log=home / "postgres.log", password=secrets.token_hex(16), durable=False
        )
    )
    try:
        await server.start()
        await server.ensure_database("attune")
        await migrate(server.url_of("attune"))
        database = await Database.connect(server.url_of("attune"), size=2)
        began = perf_counter()
        async with database.snapshot(application="bench") as tx:
            await make_past(tx, ended=ended, waiting=waiting)
        connection = await database.dedicated(application="bench")
        await connection.execute("SET statement_timeout = 0")
        await connection.execute("VACUUM ANALYZE")
        await connection.close()
        print(f"made in {perf_counter() - began:.1f} s")
        first = await measure(database, everything=True) if with_all else await skip_all(database)
        second = await measure(database)
        await add_new(database)
        show([first, second, await measure(database)], with_all=with_all)
        await database.close()
    finally:
        await server.stop()


def show(measured: list[Measured], *, with_all: bool) -> None:
    """A row for each check."""
    first = "all" if with_all else "nothing new"
    print(f"{'check':32}{first:>14}{'nothing new':>14}{f'{NEW} new':>14}")
    for checks in zip(*(each.report.checks for each in measured), strict=True):
        broken = "" if all(check.violations == 0 for check in checks) else "  BROKEN"
        print(f"{checks[0].name:32}" + "".join(f"{check.seconds:14.4f}" for check in checks) + broken)
    totals = [sum(check.seconds for check in each.report.checks) for each in measured]
    print(f"{'total':32}" + "".join(f"{total:14.4f}" for total in totals))
    print(f"{'processor of the database':32}" + "".join(f"{each.processor_seconds:14.2f}" for each in measured))


def main() -> None:
    """Parse what is asked for, and leave nothing behind."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ended", type=int, default=1_000_000)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--without-all", action="store_true")
    chosen = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="attune-bench-"))
    # The account that PostgreSQL runs as under root must be able to come in.
    home.chmod(0o755)
    try:
        asyncio.run(run(home, ended=chosen.ended, waiting=chosen.waiting, with_all=not chosen.without_all))
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
