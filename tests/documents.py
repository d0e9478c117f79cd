"""The repository's pages, taken apart: their blocks, their links, and the command lines they tell people to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
# Written by machine from the commands themselves: usage lines, not commands to type.
GENERATED = frozenset(
    {REFERENCE / "cli.md", REFERENCE / "settings.md", REFERENCE / "routes.md", REFERENCE / "failpoints.md"}
)

FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
SHELL_OPERATORS = frozenset({"|", "||", "&", "&&", ";", "(", ")", "<", ">", ">>", "<<", ";;"})
EXIT_CODE = re.compile(r"\s+# exit code (\d+)$")
PROGRAMS = frozenset({"./attune", "attune"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """One call of our program, as it is written on a page."""

    page: str
    words: tuple[str, ...]
    typed: bool  # In a block to be typed, not only named in the text.

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def pages() -> list[Path]:
    """Every page that people read."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packs/**/*.md")]
    return sorted(found)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def shell_blocks(text: str) -> list[str]:
    """What stands in blocks marked as shell."""
    return [block["body"] for block in FENCE.finditer(text) if block["language"] == "sh"]


def without_blocks(text: str) -> str:
    return FENCE.sub("", text)


def shell_lines(block: str) -> list[str]:
    """The lines of a block: those that end in a backslash joined with the next, comments and blank ones left out."""
    joined = block.replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def split_exit_code(line: str) -> tuple[str, int]:
    """A line without its remark about the exit code, and that code; without a remark it is 0."""
    remark = EXIT_CODE.search(line)
    return (line[: remark.start()], int(remark[1])) if remark else (line, 0)


def command_lines(page: Path) -> Iterator[CommandLine]:
    """Every call of our program on a page, in shell blocks and in the running text."""
    text = page.read_text()
    for block in shell_blocks(text):
        for line in shell_lines(block):
            yield from _calls(page, line, typed=True)
    for code in INLINE_CODE.findall(without_blocks(text)):
        if code.split(" ", 1)[0] in PROGRAMS:
            yield from _calls(page, code, typed=False)


def _calls(page: Path, line: str, *, typed: bool) -> Iterator[CommandLine]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] | None = None
    for token in [*lexer, ";"]:
        if words is not None and (token in SHELL_OPERATORS or set(token) <= set("();<>|&")):
            yield CommandLine(page=name_of(page), words=tuple(words), typed=typed)
            words = None
        elif words is not None:
            words.append(token)
        elif token.lstrip('"') in PROGRAMS:
            words = []


def links(page: Path) -> list[str]:
    """Where a page's links lead, those inside blocks of code left out."""
    return LINK.findall(without_blocks(page.read_text()))


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as browsers of the repository make them."""
    titles = HEADING.findall(without_blocks(page.read_text()))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def sections(text: str) -> dict[str, str]:
    """The text below each second-level heading, by its title."""
    return dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE))
