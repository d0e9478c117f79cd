"""Mistakes that are easily made about lines, each as a change of the right statements or of the right request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from attune.operations.acceptance import Request
from attune.storage.births import Birth, insert_many
from attune.storage.database import Database
from attune.storage.migrate import migrations
from attune.storage.tx import Tx
from tests.simulation.deeds import Ask, Scene
from tests.simulation.world import GROUPS
from tests.witness.prepare import prepare

# Those of the migration before this are about tables.
FIRST_MIGRATION = 2
FUNCTION = re.compile(
    r"^CREATE (OR REPLACE )?FUNCTION (?P<rest>(?P<name>\w+)\(.*?^(END )?\$\$;)", re.MULTILINE | re.DOTALL
)
LINE_LOCK = "PERFORM 1 FROM attune.line l WHERE l.id = ANY (ids) ORDER BY l.id FOR NO KEY UPDATE;"
HEADS = "ORDER BY e.priority DESC, e.seq LIMIT s.slots"
HEAD_LOCK = "PERFORM 1 FROM attune.execution x WHERE x.id = ANY (picked) ORDER BY x.id FOR NO KEY UPDATE;"
DEAD_LEAVE = "PERFORM attune.release_entries(picked);"
COUNTED = """
        SELECT line_id, count(*) FILTER (WHERE state = 'active') AS active,
               count(*) FILTER (WHERE state = 'waiting') AS waiting
          FROM gone GROUP BY line_id"""
GIVES_BACK = "SET active = l.active - c.active,"
GIVES_BACK_AGAIN = "SET active = GREATEST(0, l.active - c.active),"
COUNTED_BY_MESSAGE = """
        SELECT x.line_id, count(*) FILTER (WHERE w.state IS DISTINCT FROM 'waiting') AS active,
               count(*) FILTER (WHERE w.state = 'waiting') AS waiting
          FROM attune.execution x LEFT JOIN attune.line_entry w ON w.execution_id = x.id
         WHERE x.id = ANY (p_ended) AND x.line_id IS NOT NULL {guard} GROUP BY x.line_id"""


class AskNumberedBySequence(Ask):
    """Takes its places from a sequence, before it has the line's lock."""

    async def prepare(self, tx: Tx, scene: Scene) -> None:  # noqa: ARG002 — every deed is told the same
        self.seqs = [await tx.fetch_value(f"SELECT nextval('planted_{group}')") for group, _ in self.items]

    async def do(self, tx: Tx, scene: Scene) -> list[int]:
        ids = await super().do(tx, scene)
        for table in ("line_entry", "admission_log"):
            statement = f"UPDATE {table} t SET seq = n.seq FROM unnest($1::bigint[], $2::bigint[]) AS n (id, seq)"  # noqa: S608 — ours
            await tx.execute(f"{statement} WHERE t.execution_id = n.id", ids, self.seqs)
        return ids


class AskJoinedLater(Ask):
    """Accepts without joining: the order of the line would be that of whoever consumes the messages."""

    async def do(self, tx: Tx, scene: Scene) -> list[int]:
        wanted = [
            Request(action_ref=scene.action_ref, parameters={"g": group}, priority=priority)
            for group, priority in self.items
        ]
        prepared = await prepare(tx, wanted)
        return [row.execution_id for row in await insert_many(tx, [Birth(new=item) for item in prepared])]


def read_functions() -> str:
    """The functions about lines, each as the last migration that wrote it did."""
    latest: dict[str, str] = {}
    for migration in migrations():
        if migration.version >= FIRST_MIGRATION:
            for found in FUNCTION.finditer(migration.statements):
                latest[found["name"]] = f"CREATE OR REPLACE FUNCTION {found['rest']}"
    return "\n".join(latest.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """What is replaced in the statements, or who requests wrongly; and what never happens while it is looked for."""

    changes: Mapping[str, str]
    ask: type[Ask] = Ask
    without: frozenset[str] = frozenset()

    async def plant(self, database: Database) -> None:
        functions = read_functions()
        for right, wrong in self.changes.items():
            assert functions.count(right) == 1, f"the right text is not there once: {right}"
            functions = functions.replace(right, wrong)
        async with database.transaction() as tx:
            await tx.execute(functions)
            for group in GROUPS:
                await tx.execute(f"CREATE SEQUENCE planted_{group}")

    async def begin_again(self, database: Database) -> None:
        """A new history has new lines, and they count from one."""
        async with database.transaction() as tx:
            for group in GROUPS:
                await tx.execute(f"ALTER SEQUENCE planted_{group} RESTART")


MISTAKES: Mapping[str, Mistake] = {
    "none": Mistake(changes={}),
    # A rolled back request leaves a gap in a sequence, which alone is no harm.
    "seq from a sequence": Mistake(changes={}, ask=AskNumberedBySequence, without=frozenset({"kill"})),
    "join by the consumer": Mistake(changes={}, ask=AskJoinedLater),
    "locked heads are skipped": Mistake(
        changes={
            HEAD_LOCK: "picked := ARRAY(SELECT x.id FROM attune.execution x WHERE x.id = ANY (picked)"
            " ORDER BY x.id FOR NO KEY UPDATE SKIP LOCKED);"
        }
    ),
    "count, then insert": Mistake(changes={LINE_LOCK: "", HEADS: f"{HEADS} FOR NO KEY UPDATE SKIP LOCKED"}),
    "release without guard": Mistake(
        changes={COUNTED: COUNTED_BY_MESSAGE.format(guard=""), GIVES_BACK: GIVES_BACK_AGAIN}
    ),
    "status-only guard": Mistake(
        changes={COUNTED: COUNTED_BY_MESSAGE.format(guard="AND x.ended_at IS NOT NULL"), GIVES_BACK: GIVES_BACK_AGAIN}
    ),
    "past a dead head": Mistake(changes={DEAD_LEAVE: ""}),
    "limit off by one": Mistake(changes={"l.max_concurrent - l.active,": "l.max_concurrent - l.active + 1,"}),
}
