"""How rows of `execution` are born."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from attune.domain.execution import Failure, Status
from attune.domain.json_values import Json
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class NewExecution:
    """A row to be inserted."""

    action_id: int
    action_ref: str
    pack_version: str
    runner: str
    parameters: Mapping[str, Json]
    priority: int
    identity: int | None
    max_attempts: int
    timeout_seconds: float
    not_before: datetime | None
    pinned_to: int | None
    trace_tag: str | None
    traceparent: str | None
    changed_by: str
    worker_queue_ttl_seconds: float | None = None
    parent: int | None = None
    # Of its secret parameters, which are not among the others: seals them once the id is known.
    seal: Callable[[int], bytes] | None = field(default=None, repr=False)

    @property
    def waits_outside(self) -> bool:
        """A delayed start joins a line when it is due, and pinned work is nobody's to hold back."""
        return self.not_before is not None or self.pinned_to is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """How a row begins: requested, waiting in a line, or already ended with the reason."""

    new: NewExecution
    status: Status = Status.REQUESTED
    line_id: int | None = None
    line_seq: int | None = None
    failure: Failure | None = None
    # Joins no line, because this ancestor holds a slot there.
    inherits: int | None = None
    # Nobody alive could run it; somebody who can has to come within these seconds.
    worker_within: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inserted:
    """A new row as it was born, and how long its start lies ahead by the database's clock."""

    execution_id: int
    created: datetime
    delay_seconds: float
    status: str
    line_id: int | None
    line_seq: int | None
    error: Json


async def insert_many(tx: Tx, births: Sequence[Birth]) -> list[Inserted]:
    """Insert in the order given; ids ascend in that order."""
    new = [birth.new for birth in births]
    rows = await tx.fetch(
        """
        INSERT INTO execution (action, action_ref, pack_version, runner, parameters, status, priority, identity,
                               max_attempts, timeout_seconds, not_before, worker, pinned, trace_tag, traceparent,
                               changed_by, change_reason, line_id, line_seq, error, parent, inherits,
                               worker_queue_ttl_seconds, worker_by, queued_at, ended_at)
        SELECT action, action_ref, pack_version, runner, parameters, status, priority, identity, max_attempts,
               timeout_seconds, not_before, pinned_to, pinned_to IS NOT NULL, trace_tag, traceparent, changed_by,
               COALESCE(error ->> 'message', 'inherits slot of ' || inherits, ''), line_id, line_seq, error, parent,
               inherits, worker_queue_ttl_seconds, now() + make_interval(secs => worker_within),
               CASE WHEN status = 'queued' THEN now() END, CASE WHEN status IN ('cancelled', 'failed') THEN now() END
          FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::jsonb[], $6::int[], $7::bigint[],
                      $8::int[], $9::float8[], $10::timestamptz[], $11::bigint[], $12::text[], $13::text[], $14::text[],
                      $15::text[], $16::bigint[], $17::bigint[], $18::jsonb[], $19::bigint[], $20::bigint[],
                      $21::float8[], $22::float8[])
               WITH ORDINALITY AS n (action, action_ref, pack_version, runner, parameters, priority, identity,
                                     max_attempts, timeout_seconds, not_before, pinned_to, trace_tag, traceparent,
                                     changed_by, status, line_id, line_seq, error, parent, inherits,
                                     worker_queue_ttl_seconds, worker_within, position)
         ORDER BY position
        RETURNING id AS execution_id, created, status, line_id, line_seq, error,
                  GREATEST(0, COALESCE(extract(epoch FROM not_before - now()), 0))::float8 AS delay_seconds
        """,
        [item.action_id for item in new],
        [item.action_ref for item in new],
        [item.pack_version for item in new],
        [item.runner for item in new],
        [item.parameters for item in new],
        [item.priority for item in new],
        [item.identity for item in new],
        [item.max_attempts for item in new],
        [item.timeout_seconds for item in new],
        [item.not_before for item in new],
        [item.pinned_to for item in new],
        [item.trace_tag for item in new],
        [item.traceparent for item in new],
        [item.changed_by for item in new],
        [birth.status for birth in births],
        [birth.line_id for birth in births],
        [birth.line_seq for birth in births],
        [birth.failure for birth in births],
        [item.parent for item in new],
        [birth.inherits for birth in births],
        [item.worker_queue_ttl_seconds for item in new],
        [birth.worker_within for birth in births],
    )
    return [Inserted(**dict(row)) for row in rows]
