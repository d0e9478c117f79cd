"""A history of lines: steps of several interleaved transactions, compared with the model after each commit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from attune.storage.database import Database
from attune.storage.tx import PlainConnection
from tests.simulation.deeds import Admit, Ask, Cancel, Deed, Finish, Release, Scene, Start, Steer
from tests.simulation.model import Model, check_log, expected, read
from tests.simulation.tracks import Track
from tests.witness.arrange import TestWorker, make_action
from tests.witness.lines import make_policy

GROUPS = ("a", "b", "c")
TRACKS = 3
# How a step is drawn: what happens more often stands here more often.
KINDS = (
    *("ask",) * 6,
    *("admit",) * 5,
    *("cancel",) * 4,
    *("start", "finish", "release") * 3,
    *("commit",) * 4,
    *("kill",) * 2,
    *("race", "pause", "resume", "limit", "workers"),
)
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One move of a history; the numbers choose among what there is."""

    kind: str
    which: int
    how: int
    # Whether the transaction stays open: after its beginning, or before its commit.
    held: str = ""


@dataclass(kw_only=True)
class World:
    """An action with a policy, in a database, beside its model."""

    database: Database
    monitor: PlainConnection
    scene: Scene
    tracks: list[Track]
    ask: type[Ask] = Ask
    model: Model = field(default_factory=Model)

    @classmethod
    async def begin(cls, database: Database, worker: TestWorker, *, limit: int, ask: type[Ask] = Ask) -> Self:
        ref = f"demo.work{next(_numbers)}"
        action_id = await make_action(database, ref)
        concurrency = {"limit": limit, "parameters": ["g"]}
        await make_policy(database, ref=f"{ref}_limit", scope={"action": ref}, concurrency=concurrency)
        world = cls(
            database=database,
            monitor=await database.dedicated(application="attune-simulation-monitor"),
            scene=Scene(action_ref=ref, scope=f"action:{action_id}", worker=worker),
            tracks=[await Track.open(database) for _ in range(TRACKS)],
            ask=ask,
            model=Model(limit=limit),
        )
        await world._set_workers(live=True)
        return world

    async def live(self, steps: Sequence[Step]) -> None:
        """Take every step, let everybody finish, and judge."""
        try:
            for step in steps:
                await self._take(step)
            await self._finish()
            await self._set_workers(live=True)
            await self._do(Release(ids=sorted(self.model.ended)))
            await self._do(Admit())
            async with self.database.reading() as tx:
                for seen in (await read(tx, self.scene.scope)).values():
                    check_log(seen.log)
        finally:
            for track in self.tracks:
                await track.close()
            self.monitor.terminate()

    async def _take(self, step: Step) -> None:
        if step.kind == "commit":
            await self._go_on(step.which)
        elif step.kind == "kill":
            await self._kill(step.which)
        elif step.kind == "race":
            await self._race()
        elif step.kind in {"limit", "workers"}:
            await self._change(step)
        elif (deed := self._choose(step)) is not None and not self._is_told_too_early(deed):
            track = await self._free_track(step.which)
            track.begin(deed, self.scene, held_early=step.held == "early")
            await self._settle()
            if not step.held and track.can_commit:
                await self._commit(track)

    def _choose(self, step: Step) -> Deed | None:
        ids = self.model.executions
        choices: dict[str, Callable[[], Deed | None]] = {
            "ask": lambda: self.ask(
                items=[
                    (GROUPS[(step.which + number * step.how) % len(GROUPS)], (0, 0, 5)[(step.which + number) % 3])
                    for number in range(1 + step.how % 3)
                ]
            ),
            "admit": Admit,
            # Those who came last are the most interesting.
            "cancel": lambda: Cancel(execution_id=ids[-1 - step.which % min(len(ids), 8)]) if ids else None,
            "start": lambda: self._start(step.which),
            "finish": lambda: self._finish_of(step.which),
            "release": lambda: self._release(step),
            "pause": lambda: self._steer(step.which, pauses=True),
            "resume": lambda: self._steer(step.which, pauses=False),
        }
        return choices[step.kind]()

    def _is_told_too_early(self, deed: Deed) -> bool:
        """Nobody is told of an end that is not committed, so a step never sees one appear while it is taken."""
        under_way = [track.current.deed for track in self.tracks if track.current is not None]
        ending = deed.ends().union(*(other.ends() for other in under_way)) - self.model.ended
        told = deed.tells().union(*(other.tells() for other in under_way))
        return not ending.isdisjoint(told)

    def _start(self, which: int) -> Deed | None:
        active = sorted(entry.execution_id for line in self.model.lines.values() for entry in line.active)
        return Start(execution_id=active[which % len(active)]) if active else None

    def _finish_of(self, which: int) -> Deed | None:
        started = list(self.scene.leases.values())[-4:]
        return Finish(started=started[which % len(started)]) if started else None

    def _release(self, step: Step) -> Deed | None:
        """Of those who ended, and now and then of one who did not."""
        ids = sorted(self.model.ended)[-5:] if step.how % 5 else self.model.executions
        return Release(ids=sorted({ids[step.which % len(ids)], ids[step.how % len(ids)]})) if ids else None

    def _steer(self, which: int, *, pauses: bool) -> Deed | None:
        groups = sorted(self.model.lines)
        return Steer(group=groups[which % len(groups)], pauses=pauses) if groups else None

    async def _race(self) -> None:
        """Two executors look at the same lines at once."""
        racers = [await self._free_track(0)]
        racers[0].begin(Admit(), self.scene, held_early=False)
        racers.append(await self._free_track(0))
        racers[1].begin(Admit(), self.scene, held_early=False)
        await self._settle()

    async def _change(self, step: Step) -> None:
        """What a step of an open transaction may or may not have seen yet: only between transactions."""
        await self._finish()
        if step.kind == "workers":
            await self._set_workers(live=not self.model.workers_live)
            return
        self.model.limit = (None, 1, 1, 2, 3)[step.how % 5]
        async with self.database.transaction() as tx:
            await tx.execute(
                "UPDATE policy SET max_concurrent = $1 WHERE scope = $2", self.model.limit, self.scene.scope
            )

    async def _set_workers(self, *, live: bool) -> None:
        self.model.workers_live = live
        async with self.database.transaction() as tx:
            await tx.execute("UPDATE worker SET cordoned = $1", not live)

    async def _free_track(self, which: int) -> Track:
        while not (free := [track for track in self.tracks if track.current is None]):
            await self._go_on(which)
        return free[which % len(free)]

    async def _go_on(self, which: int) -> None:
        """Let one of the held transactions go on, or commit."""
        early = [track for track in self.tracks if track.can_go_on]
        done = [track for track in self.tracks if track.can_commit]
        waiting = done + early
        if not waiting:
            assert not any(track.current for track in self.tracks), "everybody waits for everybody"
            return
        track = waiting[which % len(waiting)]
        if track in done:
            await self._commit(track)
        elif track.current is not None:
            track.current.may_do.set()
            await self._settle()

    async def _do(self, deed: Deed) -> None:
        track = await self._free_track(0)
        track.begin(deed, self.scene, held_early=False)
        await self._settle()
        await self._commit(track)

    async def _kill(self, which: int) -> None:
        under_way = [track for track in self.tracks if track.current is not None]
        if under_way:
            await under_way[which % len(under_way)].kill(self.monitor)
            await self._settle()
            await self._compare()

    async def _commit(self, track: Track) -> None:
        run = await track.commit()
        run.deed.apply(self.model, self.scene, run.outcome)
        await self._settle()
        await self._compare()

    async def _settle(self) -> None:
        for track in self.tracks:
            await track.settle(self.monitor)

    async def _finish(self) -> None:
        while any(track.current for track in self.tracks):
            await self._go_on(0)

    async def _compare(self) -> None:
        async with self.database.reading() as tx:
            seen = await read(tx, self.scene.scope)
        wanted = expected(self.model)
        assert seen.keys() == wanted.keys()
        for group, line in wanted.items():
            assert seen[group] == line, f"line {group}"
