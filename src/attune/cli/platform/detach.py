"""Starts a supervisor that outlives the command, and waits until it is ready or has failed."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import BinaryIO, Final

import msgspec

from attune.cli.exits import CommandFailed, Exit
from attune.cli.platform.announce import LINE_BYTES_MAX, Message, Summary
from attune.cli.platform.logfiles import excerpt
from attune.cli.render import talk
from attune.runtime.home import Home

REPORT_VARIABLE: Final = "ATTUNE_REPORT_DESCRIPTOR"
SHOWN_LOG_LINES: Final = 10
END_SECONDS_MAX: Final = 60.0


def start_detached(command: Sequence[str], environment: Mapping[str, str], home: Home) -> Summary:
    """Returns when the platform is ready; the new process holds nothing of ours but the log."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as reports:
        process = _spawn(command, environment, home, writer)
        os.close(writer)
        try:
            return _listen(reports, home)
        except CommandFailed:
            _wait(process)
            raise
        except KeyboardInterrupt:
            process.terminate()
            _wait(process)
            raise


def _spawn(
    command: Sequence[str], environment: Mapping[str, str], home: Home, writer: int
) -> "subprocess.Popen[bytes]":
    log = os.open(home.log("supervisor"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        # A session of its own, without a terminal; every other descriptor is closed.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=(writer,),
            env={**environment, REPORT_VARIABLE: str(writer)},
        )
    finally:
        os.close(log)


def _listen(reports: BinaryIO, home: Home) -> Summary:
    while line := reports.readline(LINE_BYTES_MAX):
        message = msgspec.json.decode(line, type=Message)
        if message.ready is not None:
            return message.ready
        if message.error is not None:
            first, *details = message.error.splitlines()
            raise CommandFailed(first, exit_code=Exit(message.exit_code), details=details)
        if message.text:
            talk(message.text)
    shown = excerpt(home.log("supervisor"), lines_max=SHOWN_LOG_LINES)
    raise CommandFailed(f"it ended before it was ready; the end of {home.log('supervisor')}:", details=shown)


def _wait(process: "subprocess.Popen[bytes]") -> None:
    """Until nothing of it runs any more."""
    try:
        process.wait(END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        print(f"attune: the supervisor (pid {process.pid}) still stops what it started", file=sys.stderr)
