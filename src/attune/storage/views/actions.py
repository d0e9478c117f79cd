"""Actions as people and their programs read them."""

from dataclasses import dataclass
from datetime import datetime

from attune.domain.json_values import Json
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionView:
    """Everything that is shown of an action."""

    id: int
    ref: str
    pack: str
    label: str
    description: str
    runner: str
    entry_point: str | None
    command: str | None
    command_from: str | None
    image: str | None
    container: Json
    http: Json
    parameters: Json
    output: Json
    parameter_delivery: str
    parameter_format: str
    output_format: str
    timeout_seconds: float
    worker_queue_ttl_seconds: float | None
    retry: Json
    idempotent: bool
    on_worker_lost: str | None
    labels: Json
    isolation: str | None
    adhoc: bool
    enabled: bool
    # Workers lost in a row while they ran it; at a bound it is quarantined and not placed until it is released.
    workers_lost: int
    quarantined_at: datetime | None
    created: datetime
    updated: datetime


async def find(tx: Tx, ref: str) -> ActionView | None:
    """The action of this name."""
    row = await tx.fetch_row(
        """
        SELECT a.id, a.ref, p.ref AS pack, a.label, a.description, a.runner, a.entry_point, a.command, a.command_from,
               a.image, a.container, a.http, a.parameters, a.output, a.parameter_delivery, a.parameter_format,
               a.output_format, a.timeout_seconds, a.worker_queue_ttl_seconds, a.retry, a.idempotent,
               a.on_worker_lost, a.labels, a.isolation, a.adhoc, a.enabled,
               cardinality(a.lost_workers) AS workers_lost, a.quarantined_at, a.created, a.updated
          FROM action a JOIN pack p ON p.id = a.pack
         WHERE a.ref = $1
        """,
        ref,
    )
    return ActionView(**dict(row)) if row else None


async def list_page(tx: Tx, *, pack: str | None, after: int, limit: int) -> list[ActionView]:
    """Actions in the order of their ids, of one pack if it is named."""
    rows = await tx.fetch(
        """
        SELECT a.id, a.ref, p.ref AS pack, a.label, a.description, a.runner, a.entry_point, a.command, a.command_from,
               a.image, a.container, a.http, a.parameters, a.output, a.parameter_delivery, a.parameter_format,
               a.output_format, a.timeout_seconds, a.worker_queue_ttl_seconds, a.retry, a.idempotent,
               a.on_worker_lost, a.labels, a.isolation, a.adhoc, a.enabled,
               cardinality(a.lost_workers) AS workers_lost, a.quarantined_at, a.created, a.updated
          FROM action a JOIN pack p ON p.id = a.pack
         WHERE a.id > $2 AND ($1::text IS NULL OR p.ref = $1)
         ORDER BY a.id LIMIT $3
        """,
        pack,
        after,
        limit,
    )
    return [ActionView(**dict(row)) for row in rows]
