"""Waits for an execution's end and prints what it writes meanwhile."""

import os
import sys
import time
from typing import Final, TextIO

import msgspec

from attune.cli.terminal import TerminalText
from attune.client import Answer, AttuneClient, Execution, LogLine, TimedOut, Unreachable, calls

POLL_SECONDS_FIRST: Final = 0.05
POLL_SECONDS_MAX: Final = 1.0
# The API may be restarting; a wait is not lost by that.
UNREACHABLE_SECONDS_MAX: Final = 30.0
PAGES_MAX: Final = 10_000  # Of log lines per look; more come at the next look.
# A stream that is silent for longer than its heartbeats is dead.
SILENCE_SECONDS_MAX: Final = 45.0


def watch(
    attune: AttuneClient,
    answer: Answer[Execution],
    *,
    timeout_seconds: float,
    printer: "LogPrinter | None" = None,
) -> Answer[Execution]:
    """Return the execution as it ended; its output goes meanwhile to the printer, if there is one."""
    deadline = time.monotonic() + timeout_seconds
    if printer is not None:
        printer.follow(deadline)
        answer = _look(attune, answer.value.id)
    pause = POLL_SECONDS_FIRST
    while not answer.value.status.ended:
        if time.monotonic() + pause > deadline:
            message = (
                f"execution {answer.value.id} is {answer.value.status} after {timeout_seconds:g} seconds; it goes on"
            )
            raise TimedOut(message)
        time.sleep(pause)
        pause = min(pause * 1.5, POLL_SECONDS_MAX)
        answer = _look(attune, answer.value.id)
    return answer


def _look(attune: AttuneClient, execution_id: int) -> Answer[Execution]:
    deadline = time.monotonic() + UNREACHABLE_SECONDS_MAX
    while True:
        try:
            return attune.send(calls.get_execution(execution_id))
        except Unreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS_MAX)


class LogPrinter:
    """Prints an execution's output as it comes: its stdout on ours, its stderr on ours."""

    def __init__(self, attune: AttuneClient, execution_id: int, *, stream: str | None = None) -> None:
        self._attune = attune
        self._execution_id = execution_id
        self._stream = stream
        # The last event that was printed: after a break the stream goes on behind it.
        self._place: str | None = None
        # Streams that something was printed of, and whether their last line still lacks its end.
        self._unfinished: dict[str, bool] = {}
        self._terminals: dict[str, TerminalText] = {}

    @property
    def printed(self) -> bool:
        return bool(self._unfinished)

    def follow(self, deadline: float) -> None:
        """Print what is written until the execution ends or the time is over, however often the connection breaks."""
        heard = time.monotonic()
        while time.monotonic() < deadline:
            try:
                if self._print_stream(deadline):
                    break
                heard = time.monotonic()
            except Unreachable:
                if time.monotonic() - heard > UNREACHABLE_SECONDS_MAX:
                    raise
            except TimedOut:
                heard = time.monotonic()
            time.sleep(min(POLL_SECONDS_MAX, max(0.0, deadline - time.monotonic())))
        self._finish_lines()

    def print_all(self) -> None:
        """Print everything there is."""
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = self._attune.send(calls.get_logs(self._execution_id, stream=self._stream, cursor=cursor)).value
            for piece in page.items:
                self._print(piece)
            cursor = page.next_cursor
            if cursor is None:
                break
        self._finish_lines()

    def _print_stream(self, deadline: float) -> bool:
        """Print one connection's worth; whether the execution has ended."""
        silence = min(SILENCE_SECONDS_MAX, max(0.1, deadline - time.monotonic()))
        call = calls.follow_logs(self._execution_id, stream=self._stream, after=self._place)
        for event in self._attune.follow(call, silence_seconds=silence):
            if event.name == "log":
                self._print(msgspec.json.decode(event.content, type=LogLine))
                self._place = event.id
            elif event.name == "end":
                return True
            if time.monotonic() > deadline:
                return False
        return False

    def _print(self, piece: LogLine) -> None:
        target = _target(piece.stream)
        target.write(self._terminal(piece.stream).add(piece.text) if target.isatty() else piece.text)
        target.flush()
        if piece.text:
            self._unfinished[piece.stream] = not piece.text.endswith("\n")

    def _finish_lines(self) -> None:
        """End lines that the action did not end, so that nothing of ours is appended to them."""
        for stream, unfinished in self._unfinished.items():
            rest = self._terminals[stream].end() if stream in self._terminals else ""
            print(rest, end="\n" if unfinished else "", file=_target(stream), flush=True)
            self._unfinished[stream] = False

    def _terminal(self, stream: str) -> TerminalText:
        if stream not in self._terminals:
            self._terminals[stream] = TerminalText(colours=not os.environ.get("NO_COLOR"))
        return self._terminals[stream]


def _target(stream: str) -> TextIO:
    return sys.stderr if stream == "stderr" else sys.stdout
