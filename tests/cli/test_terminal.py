"""What actions wrote may colour a terminal, and do nothing else to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attune.cli.terminal import RESET, TerminalText

RED = "\x1b[31m"


def shown(*pieces: str, colours: bool = True) -> str:
    text = TerminalText(colours=colours)
    return "".join(text.add(piece) for piece in pieces) + text.end()


def test_colours_are_kept_and_ended() -> None:
    assert shown(f"{RED}red\n") == f"{RED}red\n{RESET}"


def test_colours_may_arrive_in_pieces() -> None:
    assert shown("\x1b", "[3", "1m", "red") == f"{RED}red{RESET}"


def test_without_colours_they_are_left_out() -> None:
    assert shown(f"{RED}red{RESET}\n", colours=False) == "red\n"


@pytest.mark.parametrize(
    "attack",
    [
        "\x1b]0;title\x07",  # renames the window
        "\x1b]52;c;cm0gLXJmIC8=\x07",  # fills the clipboard
        "\x1b[2J",  # clears the screen
        "\x1b[1A\x1b[2K",  # covers the line before
        "\x1bP+q544e\x1b\\",  # asks for an answer that the shell would read
        "\x9b31m",
        "\x08\x08\x08",
        "\x1b[",
        "\x1b",
        "\u202ereversed",
    ],
)
def test_whatever_else_a_terminal_would_obey_is_shown(attack: str) -> None:
    told = shown(f"before{attack}after")

    assert "\x1b" not in told
    assert all(each.isprintable() for each in told)
    assert told.startswith("before")
    assert told.endswith("after")


def test_a_line_cannot_cover_what_stood_there() -> None:
    assert shown("all is lost\rall is fine\r\n") == "all is lost\nall is fine\n"


@given(pieces=st.lists(st.text(alphabet="a\x1b[]31m;\n\r\x07é"), max_size=6))
def test_nothing_but_colours_and_line_ends_gets_through(pieces: list[str]) -> None:
    told = shown(*pieces, colours=False)

    assert all(each.isprintable() or each in "\n\t" for each in told)
