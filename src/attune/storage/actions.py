"""Rows of `action`: what can be run."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

import msgspec

from attune.domain.definitions import ActionDefinition, Isolation, RetryPolicy, Runner
from attune.domain.json_values import Json
from attune.domain.placement import Requirements
from attune.storage.tx import Row, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Runnable:
    """What accepting an execution needs to know of its action."""

    action_id: int
    ref: str
    pack_version: str
    runner: str
    parameters: Mapping[str, Json]
    timeout_seconds: float
    worker_queue_ttl_seconds: float | None
    max_attempts: int
    enabled: bool


def retry_of(stored: Mapping[str, Json]) -> RetryPolicy:
    """The retry policy as stored; an empty one means one attempt."""
    return _decode_retry(msgspec.json.encode(stored))


@lru_cache(maxsize=256)
def _decode_retry(document: bytes) -> RetryPolicy:
    return msgspec.json.decode(document, type=RetryPolicy)


async def find_runnable(tx: Tx, refs: Sequence[str]) -> dict[str, Runnable]:
    """The actions of these names that exist."""
    rows = await tx.fetch(
        """
        SELECT a.id AS action_id, a.ref, p.version AS pack_version, a.runner, a.parameters, a.timeout_seconds,
               a.worker_queue_ttl_seconds, COALESCE((a.retry ->> 'max_attempts')::int, 1) AS max_attempts,
               a.enabled AND p.enabled AS enabled
          FROM action a JOIN pack p ON p.id = a.pack
         WHERE a.ref = ANY($1)
        """,
        refs,
    )
    return {row["ref"]: Runnable(**dict(row)) for row in rows}


async def list_refs(tx: Tx) -> list[str]:
    """Every name, to suggest the nearest."""
    return await tx.fetch_column("SELECT ref FROM action ORDER BY ref LIMIT 10000")


def requirements_of(row: Row) -> Requirements:
    """What an action asks of a worker, from its columns."""
    return Requirements(
        runner=Runner(row["runner"]),
        labels=row["labels"],
        isolation=Isolation(row["isolation"]) if row["isolation"] else None,
    )


async def save_many(tx: Tx, pack_id: int, actions: Sequence[ActionDefinition], *, adhoc: bool = False) -> None:
    """Insert or replace by ref; ids stay."""
    ordered = sorted(actions, key=lambda action: action.ref)
    await tx.execute(
        """
        INSERT INTO action (ref, pack, label, description, runner, entry_point, command, command_from, image,
                            container, http, parameters, output, parameter_delivery, parameter_format, output_format,
                            timeout_seconds, retry, idempotent, on_worker_lost, labels, isolation, pool, enabled,
                            worker_queue_ttl_seconds, adhoc)
        SELECT n.ref, $2, n.label, n.description, n.runner, n.entry_point, n.command, n.command_from, n.image,
               n.container, n.http, n.parameters, n.output, n.parameter_delivery, n.parameter_format, n.output_format,
               n.timeout_seconds, n.retry, n.idempotent, n.on_worker_lost, n.labels, n.isolation, n.pool, n.enabled,
               n.worker_queue_ttl_seconds, $3
          FROM jsonb_to_recordset($1) AS n (
               ref text, label text, description text, runner text, entry_point text, command text, command_from text,
               image text, container jsonb, http jsonb, parameters jsonb, output jsonb, parameter_delivery text,
               parameter_format text, output_format text, timeout_seconds float8, retry jsonb, idempotent boolean,
               on_worker_lost text, labels jsonb, isolation text, pool bigint, enabled boolean,
               worker_queue_ttl_seconds float8)
        ON CONFLICT (ref) DO UPDATE
           SET pack = EXCLUDED.pack, label = EXCLUDED.label, description = EXCLUDED.description,
               runner = EXCLUDED.runner, entry_point = EXCLUDED.entry_point, command = EXCLUDED.command,
               command_from = EXCLUDED.command_from, image = EXCLUDED.image,
               container = EXCLUDED.container, http = EXCLUDED.http, parameters = EXCLUDED.parameters,
               output = EXCLUDED.output, parameter_delivery = EXCLUDED.parameter_delivery,
               parameter_format = EXCLUDED.parameter_format, output_format = EXCLUDED.output_format,
               timeout_seconds = EXCLUDED.timeout_seconds, retry = EXCLUDED.retry, idempotent = EXCLUDED.idempotent,
               on_worker_lost = EXCLUDED.on_worker_lost,
               labels = EXCLUDED.labels, isolation = EXCLUDED.isolation, pool = EXCLUDED.pool,
               enabled = EXCLUDED.enabled, worker_queue_ttl_seconds = EXCLUDED.worker_queue_ttl_seconds,
               adhoc = EXCLUDED.adhoc, updated = now()
        """,
        [_document(action) for action in ordered],
        pack_id,
        adhoc,
    )


def _document(action: ActionDefinition) -> dict[str, object]:
    requirements = Requirements(runner=action.runner, labels=action.labels, isolation=action.isolation)
    return asdict(action) | {"pool": requirements.pool}


async def delete_missing(tx: Tx, pack_id: int, keep: Sequence[str]) -> list[str]:
    """Remove what a pack no longer declares; what was created through the API stays."""
    return await tx.fetch_column(
        "DELETE FROM action WHERE pack = $1 AND NOT adhoc AND ref <> ALL($2) RETURNING ref", pack_id, keep
    )
