"""The witness notices what it is there to notice."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.witness.ledger import Ledger, ledger_command


def run(ledger: Ledger, execution: int, attempt: int, body: str = "true") -> None:
    subprocess.run(
        ["/bin/sh", "-c", ledger_command(ledger.path, body=body)],
        check=False,
        env={"ATTUNE_EXECUTION_ID": str(execution), "ATTUNE_ATTEMPT": str(attempt)},
    )


def test_each_attempt_may_start_once(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "a ledger's file")
    ledger.create()
    run(ledger, 1, 1)
    run(ledger, 1, 2)
    run(ledger, 2, 1, body="exit 3")
    assert ledger.starts() == [(1, 1), (1, 2), (2, 1)]
    assert ledger.ends() == [(1, 1), (1, 2)]
    assert ledger.doubled_starts() == []
    assert ledger.ends_without_start() == []


def test_a_second_start_of_an_attempt_is_noticed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.txt")
    run(ledger, 1, 1)
    run(ledger, 1, 1)
    assert ledger.doubled_starts() == [(1, 1)]


def test_an_end_without_a_start_is_noticed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.txt")
    ledger.path.write_text("end 1 1 99\n")
    assert ledger.ends_without_start() == [(1, 1)]


def test_a_torn_line_is_an_error_of_the_witness(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.txt")
    ledger.path.write_text("start 1\n")
    with pytest.raises(AssertionError, match="not a line"):
        ledger.lines()
