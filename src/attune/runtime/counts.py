"""What a process counted and has not yet added to what all processes counted together."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How much was counted under a name and its labels, which are sorted."""

    name: str
    labels: Labels
    value: float


class Unstored:
    """The difference between what was counted and what was stored."""

    def __init__(self, read: Callable[[], Iterable[Count]]) -> None:
        self._read = read
        self._stored: dict[tuple[str, Labels], float] = {}

    def take(self) -> Sequence[Count]:
        """Everything that grew since it was last stored; taken once it is noted as stored."""
        return [
            Count(name=count.name, labels=count.labels, value=grown)
            for count in self._read()
            if (grown := count.value - self._stored.get((count.name, count.labels), 0.0)) > 0
        ]

    def note_stored(self, counts: Iterable[Count]) -> None:
        """These are stored, and taken no more."""
        for count in counts:
            key = count.name, count.labels
            self._stored[key] = self._stored.get(key, 0.0) + count.value
