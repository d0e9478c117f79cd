"""Measures `attune check` on a database that has lived.

    python -m bench.check [--ended 1000000] [--waiting 100000]

Prints the seconds of each check: of everything, right after it (nothing new), and with a thousand new executions.
"""

import argparse
import asyncio
import secrets
import shutil
import tempfile
from pathlib import Path
from time import perf_counter

from attune.operations.upkeep.check_invariants import CheckReport, check_invariants
from attune.runtime.postgres_server import PostgresServer, ServerPlan
from attune.storage.database import Database
from attune.storage.migrate import migrate
from tests.witness.past import make_past

NEW = 1000


async def measure(database: Database, *, everything: bool = False) -> CheckReport:
    """One check in its snapshot."""
    async with database.snapshot(application="bench") as tx:
        return await check_invariants(tx, everything=everything)


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


async def run(home: Path, *, ended: int, waiting: int) -> None:
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
        reports = [await measure(database, everything=True), await measure(database)]
        await add_new(database)
        reports.append(await measure(database))
        show(reports)
        await database.close()
    finally:
        await server.stop()


def show(reports: list[CheckReport]) -> None:
    """A row for each check."""
    print(f"{'check':32}{'all':>10}{'nothing new':>14}{f'{NEW} new':>12}")
    for checks in zip(*(report.checks for report in reports), strict=True):
        broken = "" if all(check.violations == 0 for check in checks) else "  BROKEN"
        print(f"{checks[0].name:32}{checks[0].seconds:10.4f}{checks[1].seconds:14.4f}{checks[2].seconds:12.4f}{broken}")
    total = [sum(check.seconds for check in report.checks) for report in reports]
    print(f"{'total':32}{total[0]:10.4f}{total[1]:14.4f}{total[2]:12.4f}")


def main() -> None:
    """Parse what is asked for, and leave nothing behind."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ended", type=int, default=1_000_000)
    parser.add_argument("--waiting", type=int, default=100_000)
    chosen = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="attune-bench-"))
    # The account that PostgreSQL runs as under root must be able to come in.
    home.chmod(0o755)
    try:
        asyncio.run(run(home, ended=chosen.ended, waiting=chosen.waiting))
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
