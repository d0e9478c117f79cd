"""Every SQL statement the product can send is understood by the schema."""

from __future__ import annotations

import ast
from pathlib import Path

import asyncpg
import pytest

import attune.storage
from attune.storage.database import Database
from attune.storage.migrate import migrate
from attune.storage.upkeep.checkpoints import EVERYTHING
from attune.storage.upkeep.claims.invariant import Invariant
from attune.storage.upkeep.invariants import INVARIANTS, find_violations
from tests.witness.servers import start_postgres_15

FOLDER = Path(attune.storage.__file__).parent
CALLS = {"fetch", "fetch_row", "fetch_column", "fetch_value", "execute", "fetchval", "fetchrow"}
# These run before there is a schema, or send a statement that a test below prepares by other means.
ELSEWHERE = {"migrate.py", "tx.py", "invariants.py", "database.py"}


def statements() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for file in sorted(FOLDER.rglob("*.py")):
        if file.name in ELSEWHERE:
            continue
        found.extend(
            (f"{file.name}:{node.lineno}", literal(node, file))
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS
        )
    return found


def literal(node: ast.Call, file: Path) -> str:
    try:
        return str(ast.literal_eval(node.args[0]))
    except ValueError:
        pytest.fail(f"{file.name}:{node.lineno} sends a statement that is not a literal")


def test_storage_has_statements_to_check() -> None:
    assert len(statements()) > 40


async def test_every_statement_in_storage_is_understood_by_the_schema(database: Database) -> None:
    await understand_all(database)


@pytest.mark.external
async def test_every_statement_in_storage_is_understood_by_postgresql_15() -> None:
    async with start_postgres_15() as server:
        await migrate(server.url())
        database = await Database.connect(server.url(), size=2)
        try:
            await understand_all(database)
        finally:
            await database.close()


async def understand_all(database: Database) -> None:
    connection = await database.dedicated(application="prepare")
    wrong = []
    try:
        for place, statement in statements():
            try:
                await connection.prepare(statement)
            except asyncpg.PostgresError as error:
                wrong.append(f"{place}: {error}")
    finally:
        await connection.close()
    assert wrong == []


@pytest.mark.parametrize("invariant", INVARIANTS, ids=lambda invariant: invariant.name)
async def test_every_invariant_holds_on_an_empty_database(database: Database, invariant: Invariant) -> None:
    async with database.reading() as tx:
        assert await find_violations(tx, invariant, EVERYTHING) == (0, [])
