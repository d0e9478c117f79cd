"""Seals the secret parameters of executions, each for its own row, and opens them for the attempt that runs it."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from attune.domain.json_values import Json
from attune.domain.secrecy.sealing import Taken
from attune.runtime.keys import sealing_context
from attune.runtime.vault import Vault
from attune.storage.access import sealed_parameters
from attune.storage.births import Birth, Inserted
from attune.storage.tx import Tx


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealing:
    """Secret values that wait for the id of the execution they belong to."""

    vault: Vault
    taken: tuple[Taken, ...]

    def __call__(self, execution_id: int) -> bytes:
        """What is stored: it opens with the same key and for the same execution only."""
        content = msgspec.json.encode([(each.path, each.value) for each in self.taken])
        return self.vault.seal(content, context=_context(execution_id))


async def seal_parameters(tx: Tx, births: Sequence[Birth], rows: Sequence[Inserted]) -> None:
    """Keep the secrets of new rows, in the transaction that made them; most have none."""
    sealed = [
        (row.execution_id, birth.new.seal(row.execution_id))
        for birth, row in zip(births, rows, strict=True)
        if birth.new.seal is not None
    ]
    if sealed:
        await sealed_parameters.insert_many(tx, sealed)


def open_parameters(vault: Vault, execution_id: int, sealed: bytes) -> list[Taken]:
    """The secret values of one execution; raises NoKey or SealBroken."""
    content = vault.open(sealed, context=_context(execution_id))
    pairs: list[tuple[tuple[str | int, ...], Json]] = msgspec.json.decode(
        content, type=list[tuple[tuple[str | int, ...], object]]
    )
    return [Taken(path=path, value=value) for path, value in pairs]


def _context(execution_id: int) -> str:
    return sealing_context("execution", execution_id, "parameters")
