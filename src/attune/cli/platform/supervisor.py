"""Keeps a set of named processes running, and changes how many of each kind there are."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from attune.cli.platform.child import Backoff, Child, Death, OnDeath, Spec, State, Status

COUNT_MAX: Final = 64  # More processes of one kind on one machine are refused: it is surely a typing mistake.


class Supervisor:
    """Owns the children; every one that dies is started again until it is stopped."""

    def __init__(
        self,
        specify: Callable[[str, str], Spec],
        *,
        on_death: OnDeath,
        backoff: Backoff | None = None,
        grace_seconds: float = 10.0,
    ) -> None:
        self._specify = specify
        self._on_death = on_death
        self._backoff = backoff or Backoff()
        self._grace_seconds = grace_seconds
        self._children: dict[str, Child] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def status(self) -> list[Status]:
        return [child.status for child in self._children.values()]

    def scale(self, wanted: Mapping[str, int]) -> None:
        """Start or stop processes until there are so many of each service; returns before stopped ones are gone."""
        if self._closed:
            return
        for service, count in wanted.items():
            present = self._present(service)
            for name in _free_names(service, set(self._children), count - len(present)):
                self._add(name, service)
            for child in present[count:]:
                task = asyncio.create_task(self._remove(child))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)

    async def stop(self) -> None:
        """Stop everything within the grace."""
        self._closed = True
        await asyncio.gather(*(child.stop(grace_seconds=self._grace_seconds) for child in self._children.values()))
        for task in self._leaving:
            task.cancel()

    def kill(self) -> None:
        """End everything now."""
        self._closed = True
        for child in self._children.values():
            child.kill()

    def _present(self, service: str) -> list[Child]:
        """The processes of a service that are to stay, in the order of their names."""
        staying = {State.RUNNING, State.RESTARTING}
        return [
            child
            for child in self._children.values()
            if child.spec.service == service and child.status.state in staying
        ]

    def _add(self, name: str, service: str) -> None:
        child = Child(self._specify(service, name), backoff=self._backoff, on_death=self._on_death)
        self._children[name] = child
        child.start()

    async def _remove(self, child: Child) -> None:
        await child.stop(grace_seconds=self._grace_seconds)
        self._children.pop(child.spec.name, None)


def _free_names(service: str, taken: set[str], count: int) -> Sequence[str]:
    """The lowest numbers not in use, so that names are used again."""
    free = (f"{service}-{number}" for number in range(1, 2 * COUNT_MAX + len(taken) + 1))
    names = [name for name in free if name not in taken]
    return names[: max(count, 0)]


__all__ = ["COUNT_MAX", "Backoff", "Death", "Spec", "State", "Status", "Supervisor"]
