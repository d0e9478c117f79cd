"""`make bench`: Attune on both transports and its peers in one run, kept in bench/results.

    python -m bench.run [--quick] [--repeat 5] [--only W1,W2,peers] [--without peers] [--full] [--name NAME]

Repetitions go over everybody in turn, so that a machine that changes changes for all. A part that fails is said and
does not end the run. Servers and platforms are its own and gone afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attune import __version__
from bench.choice import TRANSPORTS, Choice, UnknownWord, choose
from bench.collect import Document, Row, is_clean, merge_rows, row_of_peer, rows_of
from bench.machine import look_before_peers
from bench.page import groups_of, title, write_page
from bench.peers.catalogue import PEERS, Peer
from bench.peers.environments import version_of
from bench.peers.measure import PeerFailed, measure_peer
from bench.plot import draw
from bench.targets import Figures, judge
from tests.witness.servers import start_rabbitmq

RESULTS = Path(__file__).parent / "results"
REPETITIONS = 5
IDLE_SECONDS = 15
QUICK_IDLE_SECONDS = 5


@dataclass(slots=True, kw_only=True)
class Bench:
    """What is asked for, and what was found so far."""

    choice: Choice
    quick: bool
    full: bool
    repeat: int
    rows: list[Row] = field(default_factory=list)
    machine: list[dict[str, Any]] = field(default_factory=list)
    idle: dict[str, Any] | None = None
    failures: dict[str, str] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:5.0f} s] {text}", file=sys.stderr, flush=True)

    def fail(self, name: str, reason: str) -> None:
        self.failures[name] = " ".join(reason.split())[-400:]
        self.say(f"{name} could not be measured: {self.failures[name]}")


async def run(bench: Bench) -> None:
    """Everybody in turn, as often as asked for."""
    for number in range(bench.repeat):
        bench.say(f"repetition {number + 1} of {bench.repeat}")
        for transport in TRANSPORTS:
            if transport in bench.choice.who:
                await measure_ours(bench, transport, first=number == 0)
        peers = [peer for peer in PEERS if peer.name in bench.choice.who]
        if any(chosen_of(bench, peer) for peer in peers):
            bench.machine.append(await look_before_peers())
        for peer in peers:
            await measure_other(bench, peer)


async def measure_ours(bench: Bench, transport: str, *, first: bool) -> None:
    """One repetition of `attune bench` on one transport."""
    names = [name for name in bench.choice.workloads_on(transport) if name != "W5" or first]
    if not names:
        return
    words = [word for name in names for word in ("--workload", name)]
    words += ["--repeat", "1", *(["--quick"] if bench.quick else []), *(["--full"] if bench.full else [])]
    if transport == "postgres" and first:
        words += ["--idle", str(QUICK_IDLE_SECONDS if bench.quick else IDLE_SECONDS)]
    # On the broker only what it carries counts, not what the worker starts.
    words += ["--runtime", "native"] if transport == "rabbitmq" and bench.quick else []
    bench.say(f"attune, {transport}: {', '.join(names)}")
    try:
        async with AsyncExitStack() as stack:
            if transport == "rabbitmq":
                words += ["--url", (await stack.enter_async_context(start_rabbitmq())).url()]
            document = await ask_attune(words)
    except Exception as error:  # noqa: BLE001  whatever it is, the others are still to be measured
        bench.fail(f"attune {transport}", str(error) or repr(error))
        return
    bench.rows += rows_of(document, transport)
    bench.machine += [{"before": f"attune {transport}", **each} for each in document["machine"]]
    bench.idle = bench.idle or document["idle"]


async def ask_attune(words: Sequence[str]) -> Document:
    """Run the command; its document."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "attune.cli.main", "bench", *words, "-o", "json"),
        stdout=asyncio.subprocess.PIPE,
        # Ctrl-C reaches it through us, and once.
        start_new_session=True,
    )
    try:
        out, _ = await process.communicate()
    except asyncio.CancelledError:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        await process.wait()
        raise
    if not out:
        raise ChildProcessError(f"attune bench ended with {process.returncode} and said why above")
    found: Document = json.loads(out)
    return found


def chosen_of(bench: Bench, peer: Peer) -> list[Any]:
    return [each for each in peer.workloads if each.name in bench.choice.workloads]


async def measure_other(bench: Bench, peer: Peer) -> None:
    """One repetition of a peer's workloads."""
    workloads = chosen_of(bench, peer)
    if not workloads:
        return
    bench.say(f"{peer.name}: {', '.join(each.name for each in workloads)}")
    try:
        runs = await measure_peer(peer, workloads, quick=bench.quick)
    except PeerFailed as error:
        bench.fail(peer.name, str(error))
        return
    bench.rows += [row_of_peer(peer.name, each) for each in runs]
    for each in runs:
        bench.say(f"{peer.name} {each.workload.name}: {each.executions:,} at {each.per_second:,.0f}/s")


def document_of(bench: Bench, command: str) -> Document:
    """Everything that is kept."""
    rows = merge_rows(bench.rows)
    figures = Figures(rows=rows, machine=bench.machine, idle=bench.idle)
    return {
        "command": command,
        "date": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "repeat": bench.repeat,
        "rows": rows,
        "peers": [
            {
                "name": peer.name,
                "version": version_of(peer.name),
                "settings": peer.settings,
                "lacks": list(peer.lacks),
                "failure": bench.failures.get(peer.name),
            }
            for peer in PEERS
            if peer.name in bench.choice.who
        ],
        "failures": bench.failures,
        "targets": [asdict(each) for each in judge(figures)],
        "machine": bench.machine,
        "idle": bench.idle,
    }


def keep(document: Document, name: str) -> None:
    """The document, the page and the plot; the page of a full run is the folder's own."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
    heading = f"Executions per second, {document['processors']} processors, {document['date']}"
    (RESULTS / f"{name}.svg").write_text(draw(heading, groups_of(document)))
    page = RESULTS / ("README.md" if name == "full" else f"{name}.md")
    page.write_text(write_page(document, plot=f"{name}.svg"))
    for row in document["rows"]:
        print(f"{row['system']:<18} {title(row):<60} {row['per_second']:>9,.1f}/s")
    for each in document["targets"]:
        print(f"{each['verdict']:<13} {each['text']:<66} {each['value']!s:>9}  {each['target']}  ({each['stretch']})")
    print(f"kept in {page}")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="once, and little of everything")
    parser.add_argument("--full", action="store_true", help="also a line of a million in W5")
    parser.add_argument("--repeat", type=int, help=f"default: {REPETITIONS}, with --quick 1")
    parser.add_argument("--only", default="", help="workloads, transports, peers: W1,W2,peers")
    parser.add_argument("--without", default="", help="the same, left out")
    parser.add_argument("--name", help="of the files; default: full, or quick with --quick")
    return parser.parse_args(arguments)


async def main(arguments: Sequence[str]) -> int:
    """Measure, keep, show."""
    asked = parse(arguments)
    try:
        choice = choose(only=asked.only, without=asked.without, quick=asked.quick)
    except UnknownWord as error:
        print(f"make bench: {error}", file=sys.stderr)
        return 2
    repeat = asked.repeat or (1 if asked.quick else REPETITIONS)
    bench = Bench(choice=choice, quick=asked.quick, full=asked.full, repeat=repeat)
    await run(bench)
    document = document_of(bench, " ".join(arguments) or "no options")
    keep(document, asked.name or ("quick" if asked.quick else "full"))
    return 0 if is_clean(document["rows"]) and not any(name.startswith("attune") for name in bench.failures) else 1


async def until_stopped(arguments: Sequence[str]) -> int:
    """Whatever asks it to end, also in the background of a shell: what was started is taken down first."""
    measuring = asyncio.create_task(main(arguments))
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(each, measuring.cancel)
    try:
        return await measuring
    except asyncio.CancelledError:
        return 130


if __name__ == "__main__":
    sys.exit(asyncio.run(until_stopped(sys.argv[1:])))
