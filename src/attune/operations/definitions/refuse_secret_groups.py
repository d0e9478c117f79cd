"""Refuses policies that would tell executions apart by a secret: the group of a line is there for everybody to read."""

from collections.abc import Iterator, Sequence

from attune.domain.definitions import PolicyDefinition, ScopeKind
from attune.domain.errors import FieldError, Invalid
from attune.domain.secrecy.schema import is_secret_at
from attune.storage import actions
from attune.storage.tx import Tx


async def refuse_secret_groups(tx: Tx, declared: Sequence[PolicyDefinition]) -> None:
    """Only policies of one action are refused; in wider lines every secret looks the same, and so forms one group."""
    grouped = [(policy.scope.ref, path) for policy in declared for path in _list_grouping(policy)]
    known = await actions.find_runnable(tx, sorted({ref for ref, _ in grouped if ref})) if grouped else {}
    for ref, path in grouped:
        action = known.get(ref or "")
        if action is not None and is_secret_at(action.parameters, path.split(".")):
            message = f"{path!r} of action {ref} is a secret, and a line shows what it is grouped by"
            field = FieldError(pointer="/concurrency/parameters", message=message)
            raise Invalid(message, code="secret_group", fields=[field])


def _list_grouping(policy: PolicyDefinition) -> Iterator[str]:
    if policy.scope.kind is ScopeKind.ACTION and policy.concurrency is not None:
        yield from policy.concurrency.parameters
