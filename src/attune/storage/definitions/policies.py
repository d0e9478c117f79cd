"""Rows of `policy`: who may run when."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from attune.domain.definitions import PolicyDefinition, PolicyScope, ScopeKind
from attune.domain.json_values import Json
from attune.storage.tx import Row, Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """A policy as it is shown: the document that declares it, and what the database adds."""

    id: int
    document: Mapping[str, Json]
    adhoc: bool
    revision: int
    created: datetime
    updated: datetime


async def find_scope_ids(tx: Tx, scopes: Sequence[PolicyScope]) -> dict[PolicyScope, str]:
    """Scopes as they are stored, by id, so that they survive a change of name; those of unknown names are left out."""
    rows = await tx.fetch(
        """
        SELECT n.kind, n.ref, n.kind || ':' || COALESCE(a.id, p.id) AS stored
          FROM unnest($1::text[], $2::text[]) AS n (kind, ref)
          LEFT JOIN action a ON n.kind = 'action' AND a.ref = n.ref
          LEFT JOIN pack p ON n.kind = 'pack' AND p.ref = n.ref
         WHERE COALESCE(a.id, p.id) IS NOT NULL
        """,
        [scope.kind for scope in scopes],
        [scope.ref for scope in scopes],
    )
    found = {PolicyScope(kind=ScopeKind(row["kind"]), ref=row["ref"]): row["stored"] for row in rows}
    return found | {scope: "global" for scope in scopes if scope.kind is ScopeKind.GLOBAL}


async def save_many(
    tx: Tx, pack_id: int, policies: Sequence[tuple[PolicyDefinition, str]], *, adhoc: bool = False
) -> None:
    """Insert or replace by ref, each with its stored scope; ids stay, and the revision grows."""
    ordered = sorted(policies, key=lambda pair: pair[0].ref)
    await tx.execute(
        """
        INSERT INTO policy AS o (ref, pack, label, description, scope, max_concurrent, method, parameters, on_retry,
                                 adaptive, rate_limit, quota, max_queue_length, queue_timeout_seconds, priority,
                                 enabled, adhoc)
        SELECT n.ref, $2, n.label, n.description, n.scope, n.max_concurrent, n.method, n.parameters, n.on_retry,
               n.adaptive, n.rate_limit, n.quota, n.max_queue_length, n.queue_timeout_seconds, n.priority,
               n.enabled, $3
          FROM jsonb_to_recordset($1) AS n (
               ref text, label text, description text, scope text, max_concurrent int, method text, parameters text[],
               on_retry text, adaptive jsonb, rate_limit jsonb, quota jsonb, max_queue_length int,
               queue_timeout_seconds float8, priority int, enabled boolean)
        ON CONFLICT (ref) DO UPDATE
           SET pack = EXCLUDED.pack, label = EXCLUDED.label, description = EXCLUDED.description,
               scope = EXCLUDED.scope, max_concurrent = EXCLUDED.max_concurrent, method = EXCLUDED.method,
               parameters = EXCLUDED.parameters, on_retry = EXCLUDED.on_retry, adaptive = EXCLUDED.adaptive,
               rate_limit = EXCLUDED.rate_limit, quota = EXCLUDED.quota,
               max_queue_length = EXCLUDED.max_queue_length, queue_timeout_seconds = EXCLUDED.queue_timeout_seconds,
               priority = EXCLUDED.priority, enabled = EXCLUDED.enabled, adhoc = EXCLUDED.adhoc,
               revision = o.revision + 1, updated = now()
        """,
        [_stored(policy, scope) for policy, scope in ordered],
        pack_id,
        adhoc,
    )


def _stored(policy: PolicyDefinition, scope: str) -> dict[str, object]:
    concurrency = policy.concurrency
    limits = {
        "max_concurrent": concurrency.limit if concurrency else None,
        "method": concurrency.method if concurrency else "enqueue",
        "parameters": concurrency.parameters if concurrency else (),
    }
    return asdict(policy) | limits | {"scope": scope}


async def delete_missing(tx: Tx, pack_id: int, keep: Sequence[str]) -> list[str]:
    """Remove what a pack no longer declares; what was created through the API stays."""
    return await tx.fetch_column(
        "DELETE FROM policy WHERE pack = $1 AND NOT adhoc AND ref <> ALL($2) RETURNING ref", pack_id, keep
    )


async def lock(tx: Tx, ref: str) -> int | None:
    """Hold a policy until the transaction ends; returns the pack it belongs to, None if there is none of this name."""
    pack_id: int | None = await tx.fetch_value("SELECT pack FROM policy WHERE ref = $1 FOR UPDATE", ref)
    return pack_id


async def find(tx: Tx, ref: str) -> PolicyRow | None:
    """The policy of this name."""
    row = await tx.fetch_row(
        """
        SELECT o.id, o.ref, o.label, o.description, o.scope, a.ref AS action_ref, p.ref AS pack_ref, o.max_concurrent,
               o.method, o.parameters, o.on_retry, o.adaptive, o.rate_limit, o.quota, o.max_queue_length,
               o.queue_timeout_seconds, o.priority, o.enabled, o.adhoc, o.revision, o.created, o.updated
          FROM policy o
          LEFT JOIN action a ON o.scope = 'action:' || a.id
          LEFT JOIN pack p ON o.scope = 'pack:' || p.id
         WHERE o.ref = $1
        """,
        ref,
    )
    return _policy(row) if row else None


async def list_page(tx: Tx, *, after: int, limit: int) -> list[PolicyRow]:
    """Policies in the order of their ids."""
    rows = await tx.fetch(
        """
        SELECT o.id, o.ref, o.label, o.description, o.scope, a.ref AS action_ref, p.ref AS pack_ref, o.max_concurrent,
               o.method, o.parameters, o.on_retry, o.adaptive, o.rate_limit, o.quota, o.max_queue_length,
               o.queue_timeout_seconds, o.priority, o.enabled, o.adhoc, o.revision, o.created, o.updated
          FROM policy o
          LEFT JOIN action a ON o.scope = 'action:' || a.id
          LEFT JOIN pack p ON o.scope = 'pack:' || p.id
         WHERE o.id > $1 ORDER BY o.id LIMIT $2
        """,
        after,
        limit,
    )
    return [_policy(row) for row in rows]


async def list_refs(tx: Tx) -> list[str]:
    """Every name, to suggest the nearest."""
    return await tx.fetch_column("SELECT ref FROM policy ORDER BY ref LIMIT 10000")


def _policy(row: Row) -> PolicyRow:
    return PolicyRow(
        id=row["id"],
        document={key: value for key, value in _document(row).items() if value is not None},
        adhoc=row["adhoc"],
        revision=row["revision"],
        created=row["created"],
        updated=row["updated"],
    )


def _document(row: Row) -> dict[str, Json]:
    same = ("ref", "label", "description", "rate_limit", "quota", "max_queue_length", "priority", "on_retry", "enabled")
    timeout = row["queue_timeout_seconds"]
    return {
        **{key: row[key] for key in same},
        "scope": _scope(row),
        "concurrency": _concurrency(row),
        "adaptive": _without_nulls(row["adaptive"]),
        "queue_timeout_seconds": None if timeout is None else int(timeout),
    }


def _scope(row: Row) -> Json:
    kind, _, stored = str(row["scope"]).partition(":")
    if kind == ScopeKind.GLOBAL:
        return kind
    # The thing it was about may be gone; then its id is all that is left to show.
    return {kind: row["action_ref"] or row["pack_ref"] or f"id {stored}"}


def _concurrency(row: Row) -> Json:
    if row["max_concurrent"] is None:
        return None
    return {"limit": row["max_concurrent"], "method": row["method"], "parameters": list(row["parameters"])}


def _without_nulls(value: Json) -> Json:
    if not isinstance(value, dict):
        return value
    return {key: _without_nulls(part) for key, part in value.items() if part is not None}
