"""Stores what an attempt leaves behind, in pieces and in one transaction, fenced by its lease."""

from collections.abc import Iterator

from attune.storage.output import artifacts
from attune.storage.output.artifacts import PIECE_BYTES, NewArtifact
from attune.storage.tx import Tx

# Pieces in one statement: 2 MiB, so that none of them takes long.
PIECES_MAX = 8


async def keep_artifact(tx: Tx, new: NewArtifact, content: bytes) -> int | None:
    """Its id; None if the attempt is no longer the holder's. Storing it twice stores it once."""
    artifact_id = await artifacts.insert(tx, new)
    if artifact_id is None:
        return await artifacts.find_id(tx, new.held, new.name)
    for pieces in _cut(content):
        await artifacts.insert_pieces(tx, artifact_id, pieces)
    return artifact_id


def _cut(content: bytes) -> Iterator[list[tuple[int, bytes]]]:
    step = PIECE_BYTES * PIECES_MAX
    for first in range(0, len(content), step):
        yield [
            (start // PIECE_BYTES, content[start : start + PIECE_BYTES])
            for start in range(first, min(first + step, len(content)), PIECE_BYTES)
        ]
