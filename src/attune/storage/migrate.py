"""Brings a database to this version's schema: numbered SQL files, forward only, each in its own transaction.

One process migrates at a time (an advisory lock); an applied file that differs from ours, or one we do not know,
stops us, because then the database belongs to another version.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import asyncpg

from attune.domain.errors import Unavailable
from attune.runtime.failpoints import failpoint
from attune.storage.tx import Connection, PlainConnection

# Any number will do, as long as every version uses the same.
MIGRATION_LOCK = 4_127_835_601
# How long a migration waits for a table that is in use, before it gives up and changes nothing.
LOCK_TIMEOUT = "10s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One numbered file."""

    version: int
    name: str
    statements: str

    @property
    def checksum(self) -> str:
        """Identifies the text as it was applied."""
        return hashlib.sha256(self.statements.encode()).hexdigest()


class SchemaMismatch(Unavailable):
    """The database was written by another version of Attune."""

    code = "schema_mismatch"


def migrations() -> list[Migration]:
    """Every file that ships with this version, in order."""
    found = [
        Migration(version=int(match[1]), name=match[2], statements=file.read_text("utf-8"))
        for file in files("attune.storage.migrations").iterdir()
        if (match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name))
    ]
    return sorted(found, key=lambda migration: migration.version)


async def migrate(url: str) -> list[Migration]:
    """Apply what is missing and return it."""
    connection: PlainConnection = await asyncpg.connect(url, timeout=10)
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK)
        await _prepare_schema(connection)
        pending = plan(await _applied(connection), migrations())
        for migration in pending:
            await _apply(connection, migration)
        return pending
    finally:
        await connection.close()


def plan(applied: Sequence[tuple[int, str]], known: Sequence[Migration]) -> list[Migration]:
    """What is still to be applied; raises if the database is not an ancestor of this version."""
    by_version = {migration.version: migration for migration in known}
    for version, checksum in applied:
        if version not in by_version:
            newest = max(by_version)
            msg = (
                f"the database has schema version {version}, this Attune knows versions up to {newest}: "
                "it was written by a newer Attune; run that version, or restore a backup made before the upgrade"
            )
            raise SchemaMismatch(msg)
        if by_version[version].checksum != checksum:
            msg = (
                f"migration {version:04}_{by_version[version].name} was applied with other contents; "
                "run the version of Attune that this database belongs to"
            )
            raise SchemaMismatch(msg)
    done = {version for version, _ in applied}
    return [migration for migration in known if migration.version not in done]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How a database compares with this version."""

    # Migrations that are still to be applied.
    pending: int
    # Migrations of a newer version. Each version's schema serves the version before it too, so we go on meanwhile.
    ahead: int


async def compare(connection: Connection) -> Standing:
    """How far the database is; raises if it belongs to another line of versions."""
    exists = await connection.fetchval("SELECT to_regclass('attune.schema_version') IS NOT NULL")
    applied = await _applied(connection) if exists else []
    known = migrations()
    numbers = {migration.version for migration in known}
    ours = [(version, checksum) for version, checksum in applied if version in numbers]
    return Standing(pending=len(plan(ours, known)), ahead=len(applied) - len(ours))


async def _prepare_schema(connection: PlainConnection) -> None:
    await connection.execute(
        """
        CREATE SCHEMA IF NOT EXISTS attune;
        CREATE TABLE IF NOT EXISTS attune.schema_version (
            version     int PRIMARY KEY,
            name        text NOT NULL,
            checksum    text NOT NULL,
            applied_at  timestamptz NOT NULL DEFAULT now()
        );
        """,
    )


async def _applied(connection: Connection) -> list[tuple[int, str]]:
    rows = await connection.fetch("SELECT version, checksum FROM attune.schema_version ORDER BY version")
    return [(row["version"], row["checksum"]) for row in rows]


async def _apply(connection: PlainConnection, migration: Migration) -> None:
    async with connection.transaction():
        await connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; SET LOCAL search_path = attune")
        await connection.execute(migration.statements)
        failpoint("migration.step.before_commit")
        await connection.execute(
            "INSERT INTO attune.schema_version (version, name, checksum) VALUES ($1, $2, $3)",
            migration.version,
            migration.name,
            migration.checksum,
        )
