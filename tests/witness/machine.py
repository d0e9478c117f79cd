"""A machine for runners, without a worker or a database: where scripts run, and what they run with."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from attune.packs.store import content_folder
from attune.worker.isolation import confine
from attune.worker.machine import watch_children_by_descriptor
from attune.worker.plan import WorkerPlan
from attune.worker.processes import Children, Marking, become_subreaper
from attune.worker.runners.protocol import Runner
from attune.worker.runners.script import ScriptPlan
from attune.worker.runtimes.equip import Equipment, equip

GRACE_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What runners stand on, and what they offer."""

    plan: WorkerPlan
    marking: Marking
    equipment: Equipment

    @property
    def runners(self) -> Mapping[str, Runner]:
        return self.equipment.offer.runners

    @property
    def details(self) -> Mapping[str, str]:
        return self.equipment.offer.details

    def write(self, name: str, content: str | bytes, *, digest: str, pack: str = "demo") -> Path:
        """A file of an installed pack."""
        path = content_folder(self.plan.packs, pack, digest) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


@asynccontextmanager
async def a_machine(variables: Mapping[str, str] | None = None, /, **changes: object) -> AsyncIterator[Machine]:
    """One that any account can enter, unlike pytest's own directories; nothing of it is left."""
    root = Path(tempfile.mkdtemp(prefix="attune-machine-"))
    root.chmod(0o755)
    try:
        async with a_machine_in(root, variables or {}, **changes) as machine:
            yield machine
    finally:
        shutil.rmtree(root, ignore_errors=True)


@asynccontextmanager
async def a_machine_in(root: Path, variables: Mapping[str, str], **changes: object) -> AsyncIterator[Machine]:
    """In a directory that may already hold what another one left."""
    watch_children_by_descriptor()
    become_subreaper()
    for name in ("packs", "scratch"):
        (root / name).mkdir(exist_ok=True)
    plan = make_plan(root, changes)
    marking = Marking(home=root, worker="worker-1", instance=uuid4())
    children = Children()
    launcher, confinement = await confine(plan, children)
    scripts = ScriptPlan(
        scratch=plan.scratch,
        marking=marking,
        children=children,
        launcher=launcher,
        confinement=confinement,
        grace_seconds=GRACE_SECONDS,
    )
    equipment = await equip(plan, scripts, variables=variables)
    try:
        yield Machine(plan=plan, marking=marking, equipment=equipment)
    finally:
        await equipment.close()


def make_plan(root: Path, changes: Mapping[str, object]) -> WorkerPlan:
    values: dict[str, object] = {
        "name": "worker-1",
        "home": root,
        "packs": root / "packs",
        "scratch": root / "scratch",
        "capacity": 4,
        "heartbeat_seconds": 1.0,
        "shutdown_seconds": 5.0,
        "queue_ttl_ms": 60_000,
        "version": "test",
        "grace_seconds": GRACE_SECONDS,
    }
    return WorkerPlan(**{**values, **changes})  # type: ignore[arg-type]  # each has its field's type
