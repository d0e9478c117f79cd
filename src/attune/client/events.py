"""Server-sent events, as they arrive."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event; without a name it only says that the stream is alive."""

    name: str = ""
    id: str | None = None
    content: bytes = b""


def read_events(pieces: Iterable[bytes]) -> Iterator[Event]:
    """Events out of pieces of any size."""
    held = b""
    fields: dict[bytes, bytes] = {}
    for piece in pieces:
        # Only the newline ends a line here: texts may hold what others take for one.
        *lines, held = (held + piece).split(b"\n")
        for line in lines:
            name, _, value = line.partition(b":")
            if not line:
                yield _event(fields)
                fields = {}
            elif name:
                fields[name] = value.removeprefix(b" ")


def _event(fields: dict[bytes, bytes]) -> Event:
    place = fields.get(b"id")
    return Event(
        name=fields.get(b"event", b"").decode(),
        id=None if place is None else place.decode(),
        content=fields.get(b"data", b""),
    )
