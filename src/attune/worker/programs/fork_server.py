"""A Python that has already started: each execution is a fresh copy of it, which runs one action and ends.

    python -I -B fork_server.py PARENT

It runs under the account of actions and is told nothing that is worth stealing: what an action is given, its
environment included, is read by the copy and never by the server, so that no later copy can find it in its memory.
"""

import contextlib
import os
import socket
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attune.worker.launcher import server as launch_server
    from attune.worker.programs import python_host
else:
    # Both lie beside this file, and nothing else shall be found there.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import launch_server
    import python_host

    del sys.path[0]

# What actions usually import. Nothing here starts a thread or opens anything when it is imported.
USUAL = (
    "argparse",
    "asyncio",
    "base64",
    "collections",
    "contextlib",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "email.message",
    "enum",
    "functools",
    "hashlib",
    "hmac",
    "html",
    "http.client",
    "inspect",
    "io",
    "itertools",
    "json",
    "logging",
    "math",
    "operator",
    "pathlib",
    "random",
    "re",
    "secrets",
    "shlex",
    "shutil",
    "socket",
    "ssl",
    "string",
    "subprocess",
    "tempfile",
    "textwrap",
    "threading",
    "time",
    "traceback",
    "types",
    "typing",
    "urllib.parse",
    "urllib.request",
    "uuid",
    "xml.etree.ElementTree",
    "zoneinfo",
)
CONTROL = 3
ENVIRONMENT = 3
# After the host's own words; without them the copy only shows that it can be made.
FIRST_WORD = 4


def warm_up(declared: "list[str]") -> None:
    """Import what is usual, and what a pack declares; what cannot be imported will say so in the action."""
    for name in (*USUAL, *declared):
        with contextlib.suppress(Exception):
            __import__(name)
    # A copy has one thread, and whatever the others held is held in it for ever.
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit(f"one of these starts a thread when it is imported: {' '.join(declared)}")


def enter(request: launch_server.Request) -> None:
    """In the copy: take what is the action's own, run it, and leave; never returns."""
    with open(ENVIRONMENT, "rb") as file:
        for field in file.read().split(b"\0"):
            name, _, value = field.partition(b"=")
            if name:
                request.environment[name] = value
    launch_server.stay(request)
    words = [os.fsdecode(word) for word in request.words[FIRST_WORD:]]
    code = python_host.main(*words) if words and take_over() else 0
    leave(code)


def take_over() -> bool:
    """Make what was computed when the server started true for this execution."""
    import signal
    import tempfile
    import time

    # As in a Python that has just been started.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    time.tzset()
    tempfile.tempdir = None
    for number, name, mode, errors in STREAMS:
        stream = open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115  for life
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    return True


STREAMS = (
    (0, "stdin", "r", "surrogateescape"),
    (1, "stdout", "w", "surrogateescape"),
    (2, "stderr", "w", "backslashreplace"),
)


def leave(code: int) -> None:
    """End as a Python does that has run to its end, without tearing down what belongs to the server."""
    import atexit
    import threading

    try:
        # What every Python does at its end; there is no public name for it.
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001  waits for threads
        atexit._run_exitfuncs()  # noqa: SLF001  as above
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        code = code or 120  # What a Python ends with that cannot flush.
    os._exit(code)


if __name__ == "__main__":
    warm_up(sys.argv[2:])
    launch_server.serve(socket.socket(fileno=CONTROL), parent=int(sys.argv[1]), enter=enter)
