"""Builds the library that is loaded into every process of a run, and tells each process what to suffer."""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
COMPILER = "gcc"
BUILD_SECONDS = 60
FOLDER_BYTES = 1000
# As `struct control` of the library: the clock's offset, the delay of each sync, the disk's state, and where.
LAYOUT = struct.Struct(f"qqq{FOLDER_BYTES}s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shim:
    """The built library, and the folder in which each process finds its orders."""

    library: Path
    control: Path

    def variables(self) -> dict[str, str]:
        """What a process needs in its environment to obey."""
        return {"LD_PRELOAD": str(self.library), "CHAOS_CONTROL": str(self.control)}

    def order(
        self, process: str, *, clock_seconds: int = 0, sync_seconds: float = 0.0, disk_full: int = 0, folder: str = ""
    ) -> None:
        """Replace the orders of one process; without any, it is left in peace."""
        orders = LAYOUT.pack(clock_seconds, int(sync_seconds * 1e6), disk_full, folder.encode())
        with (self.control / process).open("r+b") as file:
            file.write(orders)


def build_shim(folder: Path, processes: tuple[str, ...]) -> Shim | str:
    """The library with orders for these processes, or the reason why there is none."""
    if shutil.which(COMPILER) is None:
        return f"there is no {COMPILER} to build the library with"
    library, control = folder / "shim.so", folder / "control"
    built = subprocess.run(
        [COMPILER, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"],
        capture_output=True,
        check=False,
        text=True,
        timeout=BUILD_SECONDS,
    )
    if built.returncode != 0:
        return f"the library cannot be built: {built.stderr.strip()[:200]}"
    library.chmod(0o755)
    control.mkdir()
    for process in processes:
        (control / process).write_bytes(bytes(LAYOUT.size))
    return Shim(library=library, control=control)
