"""How often a race is run: a few times in every run, a thousand with `--rounds 1000`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Rounds = Callable[[int], int]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounds", type=int, default=None, help="how often each race is run, instead of a few times")


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> Rounds:
    """So many rounds, unless the command line asks for another number."""
    asked: int | None = request.config.getoption("--rounds")
    return lambda usual: usual if asked is None else asked
