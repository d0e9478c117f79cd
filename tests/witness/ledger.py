"""What actions themselves say they did: one line for each start and end, in a file that nobody else writes.

It is the witness against a second start: whatever the database believes, each attempt may say `start` once.
"""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

START = "start"
END = "end"
FIELDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one process of one attempt said."""

    what: str
    execution: int
    attempt: int
    pid: int

    @property
    def key(self) -> tuple[int, int]:
        """The attempt it is about."""
        return self.execution, self.attempt


def ledger_command(ledger: Path, *, body: str) -> str:
    """A shell script that tells the ledger when it starts and ends, with `body` in between.

    The shell opens the file for appending, and a line this short is written whole or not at all.
    """
    place = shlex.quote(str(ledger))
    say = f'echo "%s $ATTUNE_EXECUTION_ID $ATTUNE_ATTEMPT $$" >> {place}'
    return f"{say % START}\n{body}\n{say % END}\n"


class Ledger:
    """Reads what actions wrote."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self) -> None:
        """An empty ledger that every account may append to."""
        self.path.touch()
        self.path.chmod(0o666)

    def lines(self) -> list[Line]:
        """Everything said so far; a line that is not whole is an error of the witness itself."""
        if not self.path.exists():
            return []
        return [_parse(text) for text in self.path.read_text().splitlines()]

    def starts(self) -> list[tuple[int, int]]:
        """Execution and attempt of every start, in order."""
        return [line.key for line in self.lines() if line.what == START]

    def ends(self) -> list[tuple[int, int]]:
        """Execution and attempt of every end, in order."""
        return [line.key for line in self.lines() if line.what == END]

    def doubled_starts(self) -> list[tuple[int, int]]:
        """Attempts that were started more than once."""
        return sorted(key for key, count in Counter(self.starts()).items() if count > 1)

    def ends_without_start(self) -> list[tuple[int, int]]:
        """Attempts that ended more often than they started."""
        surplus = Counter(self.ends()) - Counter(self.starts())
        return sorted(surplus)


def _parse(text: str) -> Line:
    words = text.split()
    assert len(words) == FIELDS, f"not a line of the ledger: {text!r}"
    assert words[0] in {START, END}, f"not a line of the ledger: {text!r}"
    return Line(what=words[0], execution=int(words[1]), attempt=int(words[2]), pid=int(words[3]))
