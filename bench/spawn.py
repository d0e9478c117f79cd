"""What starting a process costs the worker: `python -m bench.spawn [COUNT]`, kept in bench/results/spawn.json.

Processor time of everybody involved, for each start of /bin/true, five at a time: the least a machine allows
(`posix_spawn` with nothing around it), a chain of programs started by asyncio, and the launcher at each level that
this machine offers.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from attune.worker.isolation import confine
from attune.worker.launcher.client import Launcher
from attune.worker.launcher.order import Order, Walls
from attune.worker.machine import watch_children_by_descriptor
from attune.worker.plan import WorkerPlan
from attune.worker.processes import Children

RESULTS = Path(__file__).parent / "results"
COUNT_DEFAULT = 500
LANES = 5
ROUNDS = 3
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
Start = Callable[[], Awaitable[object]]


def spawn_bare() -> None:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], ENVIRONMENT), 0)


async def start_bare() -> None:
    """Nothing around it, and nobody else served meanwhile: the ceiling."""
    spawn_bare()


async def start_chain() -> None:
    """As workers did before there was a launcher."""
    words = [shutil.which("setpriv") or "setpriv", "--pdeathsig", "KILL", "--no-new-privs", "/bin/true"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *words, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, env=ENVIRONMENT
    )
    await process.communicate(b"{}\n")


def with_launcher(launcher: Launcher, walls: Walls) -> Start:
    order = Order(words=["/bin/true"], environment=ENVIRONMENT, directory=Path("/"), walls=walls)
    return lambda: launcher.probe(order, seconds_max=60)


def processor_seconds(launcher: Launcher) -> float:
    """Of this process, the launcher, and everything they have waited for."""
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    fields = Path(f"/proc/{launcher.pid}/stat").read_text().rpartition(")")[2].split()
    ticks = sum(int(each) for each in fields[11:15])
    return sum(each.ru_utime + each.ru_stime for each in own) + ticks / os.sysconf("SC_CLK_TCK")


async def measure(start: Start, launcher: Launcher, count: int) -> dict[str, float]:
    async def lane() -> None:
        for _ in range(count // LANES):
            await start()

    before, began = processor_seconds(launcher), time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(LANES)))
    seconds = time.perf_counter() - began
    return {
        "cpu_us": round((processor_seconds(launcher) - before) / count * 1e6),
        "per_second": round(count / seconds),
    }


def make_plan(home: Path) -> WorkerPlan:
    home.chmod(0o755)
    scratch = home / "scratch"
    scratch.mkdir()
    scratch.chmod(0o711)
    return WorkerPlan(
        name="bench",
        home=home,
        packs=home,
        scratch=scratch,
        capacity=1,
        heartbeat_seconds=10,
        shutdown_seconds=1,
        queue_ttl_ms=1,
        version="bench",
    )


async def measure_all(count: int, plan: WorkerPlan) -> dict[str, dict[str, float]]:
    """Of several rounds the least: whatever else the machine does can only add to it."""
    watch_children_by_descriptor()
    launcher, confinement = await confine(plan, Children())
    ways: dict[str, Start] = {"posix_spawn": start_bare, "asyncio and setpriv": start_chain}
    ways |= {f"launcher, {level}": with_launcher(launcher, walls) for level, walls in confinement.walls.items()}
    rounds = [{name: await measure(start, launcher, count) for name, start in ways.items()} for _ in range(ROUNDS)]
    launcher.stop()
    return {name: min((each[name] for each in rounds), key=lambda one: one["cpu_us"]) for name in ways}


def main(count: int) -> None:
    """Measure, keep, show."""
    with tempfile.TemporaryDirectory() as folder:
        best = asyncio.run(measure_all(count, make_plan(Path(folder))))
    RESULTS.mkdir(exist_ok=True)
    document = json.dumps({"count": count, "rounds": ROUNDS, "lanes": LANES, "ways": best}, indent=2)
    (RESULTS / "spawn.json").write_text(document + "\n")
    print(document)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT_DEFAULT)
