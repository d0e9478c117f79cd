"""Which program makes containers here, proven by a container that does nothing."""

import io
import platform
import shutil
import struct
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from attune.domain.definitions import ContainerLimits
from attune.worker.containers.engine import LABEL, Engine, EngineKind, Said, accounts, needed_environment
from attune.worker.containers.options import Container, run_words
from attune.worker.processes import Children

PROBE_IMAGE: Final = "localhost/attune-probe:1"
PROGRAM: Final = "/probe"

# exit(0), in the language of each processor.
_EXIT: Final[Mapping[str, tuple[int, bytes]]] = {
    "x86_64": (62, bytes.fromhex("b83c000000 31ff 0f05")),
    "aarch64": (183, bytes.fromhex("a80b80d2 000080d2 010000d4")),
}
_BASE: Final = 0x400000
_HEADERS_BYTES: Final = 64 + 56


class NoEngine(Exception):
    """No container can be made here; says why, for each program that was tried."""


async def find_engine(choice: str, own: Mapping[str, str], children: Children) -> Engine:
    """The program the setting asks for, or with `auto` the first that works; raises NoEngine."""
    reasons = []
    for kind in EngineKind if choice == "auto" else (EngineKind(choice),):
        environment = needed_environment(own)
        program = shutil.which(kind, path=environment["PATH"])
        if program is None:
            reasons.append(f"{kind} is not installed")
            continue
        account = accounts(kind)[0]
        engine = Engine(kind=kind, program=program, environment=environment, children=children, account=account)
        try:
            return await _prove(engine)
        except NoEngine as error:
            reasons.append(str(error))
    raise NoEngine("; ".join(reasons))


async def _prove(engine: Engine) -> Engine:
    answer = await engine.call("ps", "--quiet")
    if answer.exit_code != 0:
        raise NoEngine(f"{engine.kind} does not answer: {answer.problem}")
    machine = platform.machine()
    if machine not in _EXIT:
        return engine  # Nothing to try it with; that it answers has to do.
    if not await engine.has_image(PROBE_IMAGE):
        made = await engine.call("import", "-", PROBE_IMAGE, stdin=image_of_nothing(machine))
        if made.exit_code != 0:
            raise NoEngine(f"{engine.kind} cannot keep an image: {made.problem}")
    return await _try_accounts(engine)


async def _try_accounts(engine: Engine) -> Engine:
    problem = ""
    for account in accounts(engine.kind):
        # Some installations come without the small program that `--init` needs.
        for init in (True, False):
            tried = replace(engine, account=account, init=init)
            answer = await _run_nothing(tried)
            if answer.exit_code == 0:
                return tried
            problem = problem or answer.problem
    raise NoEngine(f"{engine.kind} cannot run a container: {problem}")


async def _run_nothing(engine: Engine) -> Said:
    container = Container(image=PROBE_IMAGE, limits=ContainerLimits(), labels=[f"{LABEL}.probe=1"], words=[PROGRAM])
    return await engine.call(*run_words(engine, container), stdin=b"")


def image_of_nothing(machine: str) -> bytes:
    """A file system with one program, which exits: as little as can be run without fetching anything."""
    number, code = _EXIT[machine]
    program = _elf(number, code)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo(PROGRAM.lstrip("/"))
        entry.size, entry.mode = len(program), 0o755
        tar.addfile(entry, io.BytesIO(program))
        for name in ("tmp", "proc", "dev", "sys", "etc", "run"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
    return archive.getvalue()


def _elf(machine: int, code: bytes) -> bytes:
    """The smallest executable that a kernel takes: two headers and the code."""
    size = _HEADERS_BYTES + len(code)
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    entry = _BASE + _HEADERS_BYTES
    header = identity + struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)
    return header + segment + code
