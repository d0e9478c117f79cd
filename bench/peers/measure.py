"""Measures one peer: its workers run, a producer sends, and the file of effects tells when the last was done."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from attune.cli.bench.judge import count_inversions
from attune.cli.bench.usage import cpu_us_per, usage
from attune.runtime.postgres_server import ServerError
from bench.peers.catalogue import Peer, PeerWorkload
from bench.peers.environments import NotInstalled, programs_of
from bench.peers.servers import Place, serve_peer
from tests.witness.servers import ServerFailed, free_ports
from tools.unpack import CannotUnpack

SCRIPTS = Path(__file__).parent / "scripts"
WARM_UP = 50
# Numbers of warm-ups, which nobody counts.
WARM_UP_FIRST = 10_000_000
POLL_SECONDS = 0.02
# Starting may take long; once it runs, nothing new for so long means that nothing will come.
START_SECONDS = 120.0
STILL_SECONDS = 30.0
STOP_SECONDS = 10.0
SETUP_SECONDS = 120.0


class PeerFailed(Exception):
    """A peer could not be measured; says what it said last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRun:
    """One workload of one peer."""

    workload: PeerWorkload
    executions: int
    per_second: float
    lost: int
    duplicated: int
    # What it never promised, and what its figure therefore does not include.
    inversions: int
    cpu_us: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    number: int
    at: float


@dataclass(slots=True, kw_only=True)
class Stand:
    """A peer that runs: where its things are, and the processes that work."""

    peer: Peer
    home: Path
    words: Mapping[str, str]
    place: Place
    workers: dict[str, int] = field(default_factory=dict)

    @property
    def ledger(self) -> Path:
        return self.home / "effects.txt"

    @property
    def log(self) -> Path:
        return self.home / "output.log"

    @property
    def environment(self) -> dict[str, str]:
        own = {name: self.fill(value) for name, value in self.peer.environment.items()}
        given = {"PEER_URL": self.place.url, "PEER_LEDGER": str(self.ledger), "HOME": str(self.home)}
        return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": str(SCRIPTS), **given, **own}

    def fill(self, word: str) -> str:
        return word.format(**self.words)

    async def start(self, words: Sequence[str], *, piped: bool = False) -> asyncio.subprocess.Process:
        with self.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(self.fill(word) for word in words),
                cwd=SCRIPTS,
                env=self.environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if piped else log,
                stderr=log,
                start_new_session=True,
            )

    def said(self) -> str:
        return self.log.read_text(errors="replace").strip()[-800:]


async def measure_peer(peer: Peer, workloads: Sequence[PeerWorkload], *, quick: bool) -> list[PeerRun]:
    """Every workload on a fresh server; raises PeerFailed with the reason if it cannot be."""
    try:
        programs = await asyncio.to_thread(programs_of, peer.name)
        async with serve_peer(peer) as place, running(peer, programs, place) as stand:
            await _send(stand, PeerWorkload(name="warm-up", executions=0, quick=0, limit=5), WARM_UP, WARM_UP_FIRST)
            return [await _measure(stand, each, each.quick if quick else each.executions) for each in workloads]
    except (NotInstalled, CannotUnpack, ServerFailed, ServerError, OSError) as error:
        raise PeerFailed(str(error)) from error


@asynccontextmanager
async def running(peer: Peer, programs: Path, place: Place) -> AsyncIterator[Stand]:
    """Its workers, and nothing of them afterwards."""
    with tempfile.TemporaryDirectory(prefix=f"attune-peer-{peer.name}-", ignore_cleanup_errors=True) as home:
        words = {
            "bin": str(programs),
            "url": place.url,
            "home": home,
            "port": str(free_ports(1)[0]),
            "cores": str(os.cpu_count() or 1),
        }
        stand = Stand(peer=peer, home=Path(home), words=words, place=place)
        stand.ledger.touch()
        for command in peer.setup:
            await _finish(stand, await stand.start(command), SETUP_SECONDS)
        processes: list[asyncio.subprocess.Process] = []
        try:
            for command in [*peer.background, *[peer.workers] * (os.cpu_count() or 1 if peer.workers else 0)]:
                processes.append(await stand.start(command))
                stand.workers[f"workers-{len(processes)}"] = processes[-1].pid
            yield stand
        finally:
            await asyncio.gather(*(_stop(each) for each in processes))


async def _measure(stand: Stand, workload: PeerWorkload, executions: int) -> PeerRun:
    pids = {**stand.place.pids, **stand.workers}
    # Files opened to append go on at the new end.
    stand.ledger.write_bytes(b"")
    used = usage(pids)
    began = await _send(stand, workload, executions, first=0)
    spent = cpu_us_per(executions, used, usage(pids))
    effects = read_effects(stand.ledger)
    return summarize(workload, effects, began=began, executions=executions, cpu_us=spent)


def summarize(
    workload: PeerWorkload, effects: Sequence[Effect], *, began: float, executions: int, cpu_us: Mapping[str, int]
) -> PeerRun:
    """From the first request to the last effect."""
    numbers = [each.number for each in effects]
    seconds = max(each.at for each in effects) - began
    return PeerRun(
        workload=workload,
        executions=executions,
        per_second=round(len(set(numbers)) / seconds, 1),
        lost=executions - len(set(numbers)),
        duplicated=len(numbers) - len(set(numbers)),
        inversions=sum(
            count_inversions([number for number in numbers if number % workload.actions == action])
            for action in range(workload.actions)
        ),
        cpu_us=cpu_us,
    )


async def _send(stand: Stand, workload: PeerWorkload, executions: int, first: int) -> float:
    """Have a producer send, and wait until all effects are there; when the first request was sent."""
    words = [str(each) for each in (first, executions, workload.actions, workload.limit)]
    command = ["{bin}/python", f"with_{stand.peer.name}.py", "send", *words]
    producer = await stand.start(command, piped=True)
    try:
        await _until_effects(stand, producer, executions, still_seconds=START_SECONDS if first else STILL_SECONDS)
        out, _ = await asyncio.wait_for(producer.communicate(), STILL_SECONDS)
    except TimeoutError as error:
        raise PeerFailed(f"its producer does not end: {stand.said()}") from error
    finally:
        await _stop(producer)
    if producer.returncode:
        raise PeerFailed(f"its producer failed: {stand.said()}")
    return float(json.loads(out)["began"])


async def _until_effects(
    stand: Stand, producer: asyncio.subprocess.Process, count: int, *, still_seconds: float
) -> None:
    seen, changed = 0, time.monotonic()
    while seen < count:
        if producer.returncode:
            raise PeerFailed(f"its producer failed: {stand.said()}")
        found = stand.ledger.read_bytes().count(b"\n")
        if found > seen:
            seen, changed = found, time.monotonic()
        elif time.monotonic() - changed > still_seconds:
            raise PeerFailed(f"nothing happened for {still_seconds:.0f} s at {seen} of {count}: {stand.said()}")
        await asyncio.sleep(POLL_SECONDS)


def read_effects(ledger: Path) -> list[Effect]:
    """In the order they were written."""
    pairs = (line.split() for line in ledger.read_text(encoding="ascii").splitlines())
    return [Effect(number=int(number), at=float(at)) for number, at in pairs if int(number) < WARM_UP_FIRST]


async def _finish(stand: Stand, process: asyncio.subprocess.Process, seconds: float) -> None:
    try:
        code = await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError as error:
        raise PeerFailed(f"its setup does not end: {stand.said()}") from error
    finally:
        await _stop(process)
    if code:
        raise PeerFailed(f"its setup failed: {stand.said()}")


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Ask, and after a while insist; its whole session, which is its own."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
    # Its children, too; the group outlives its leader as long as one of them lives.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
