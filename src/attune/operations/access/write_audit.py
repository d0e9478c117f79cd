"""The one writer of the audit log: called in the transaction that makes the change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from attune.domain.json_values import Json
from attune.storage.access import audit_log
from attune.storage.access.audit_log import AuditEntry
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who makes a change: a person or program by its identity, or a part of Attune by its name."""

    name: str
    identity: int | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What was done to which thing; the detail never holds a secret."""

    operation: str
    resource: str
    by: Actor
    detail: Mapping[str, Json] = field(default_factory=dict)


async def write_audit(tx: Tx, deeds: Sequence[Deed]) -> None:
    """Record deeds, in order."""
    if deeds:
        await audit_log.insert_many(tx, [_entry(deed) for deed in deeds])


def _entry(deed: Deed) -> AuditEntry:
    return AuditEntry(
        identity=deed.by.identity,
        actor=deed.by.name,
        operation=deed.operation,
        resource=deed.resource,
        detail=dict(deed.detail),
        request_id=deed.by.request_id,
    )
