"""Waits for an execution's end and prints what it writes meanwhile."""

import sys
import time
from typing import Final

from attune.client import Answer, AttuneClient, ClientError, Execution, TimedOut, Unreachable, calls

POLL_SECONDS_FIRST: Final = 0.05
POLL_SECONDS_MAX: Final = 1.0
# The API may be restarting; a wait is not lost by that.
UNREACHABLE_SECONDS_MAX: Final = 30.0
PAGES_MAX: Final = 10_000  # Of log lines per look; more come at the next look.


def watch(
    attune: AttuneClient,
    answer: Answer[Execution],
    *,
    timeout_seconds: float,
    printer: "LogPrinter | None" = None,
) -> Answer[Execution]:
    """Return the execution as it ended; its output goes meanwhile to the printer, if there is one."""
    deadline = time.monotonic() + timeout_seconds
    pause = POLL_SECONDS_FIRST
    while True:
        ended = answer.value.status.ended
        # Once more after the end was seen: what was written last may have come after the look before.
        if printer is not None:
            printer.print_new()
        if ended:
            if printer is not None:
                printer.finish_lines()
            return answer
        if time.monotonic() + pause > deadline:
            message = (
                f"execution {answer.value.id} is {answer.value.status} after {timeout_seconds:g} seconds; it goes on"
            )
            raise TimedOut(message)
        time.sleep(pause)
        pause = min(pause * 1.5, POLL_SECONDS_MAX)
        answer = _look(attune, answer.value.id)


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
        self._cursor: str | None = None
        self._printed = 0
        # Streams that something was printed of, and whether their last line still lacks its end.
        self._unfinished: dict[str, bool] = {}

    @property
    def printed(self) -> bool:
        return bool(self._unfinished)

    def finish_lines(self) -> None:
        """End lines that the action did not end, so that nothing of ours is appended to them."""
        for stream, unfinished in self._unfinished.items():
            if unfinished:
                print(file=sys.stderr if stream == "stderr" else sys.stdout, flush=True)
                self._unfinished[stream] = False

    def print_new(self) -> None:
        """Print what was not printed yet."""
        try:
            for _ in range(PAGES_MAX):
                if not self._print_page():
                    return
        except ClientError:
            return  # Looked at again at the next turn, and for the last time by whoever asks for the logs.

    def print_all(self) -> None:
        """Print everything there is; raises where `print_new` would try again later."""
        for _ in range(PAGES_MAX):
            if not self._print_page():
                break
        self.finish_lines()

    def _print_page(self) -> bool:
        """Print one page; whether there is another."""
        call = calls.get_logs(self._execution_id, stream=self._stream, cursor=self._cursor)
        page = self._attune.send(call).value
        # Without a further cursor the same page comes again and longer: skip what was printed of it.
        for piece in page.items[self._printed :]:
            target = sys.stderr if piece.stream == "stderr" else sys.stdout
            target.write(piece.text)
            target.flush()
            self._unfinished[piece.stream] = not piece.text.endswith("\n")
        if page.next_cursor is None:
            self._printed = len(page.items)
            return False
        self._cursor, self._printed = page.next_cursor, 0
        return True
