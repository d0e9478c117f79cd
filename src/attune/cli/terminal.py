"""What actions wrote, made fit for a terminal: colours are obeyed, everything else is shown.

A terminal also obeys sequences that move the cursor, rename the window or fill the clipboard. What an action prints may
come from anybody, so none of these reach it. Files and pipes get every byte as it was written.
"""

import re
from typing import Final

_COLOUR: Final = re.compile(r"(\x1b\[[0-9;:]*m)")
# What may become a colour when more arrives.
_BEGUN: Final = re.compile(r"\x1b(\[[0-9;:]{0,30})?$")
_KEPT: Final = frozenset("\n\t")
RESET: Final = "\x1b[0m"


class TerminalText:
    """One stream on its way to a terminal."""

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours
        self._held = ""
        self._coloured = False

    def add(self, text: str) -> str:
        """The text as the terminal may have it."""
        text = self._held + text
        begun = _BEGUN.search(text)
        self._held = begun[0] if begun else ""
        if begun:
            text = text[: begun.start()]
        return "".join(self._show(part) for part in _COLOUR.split(text))

    def end(self) -> str:
        """What was held back, and the colours as they were before."""
        rest, self._held = _harmless(self._held), ""
        if not self._coloured:
            return rest
        self._coloured = False
        return rest + RESET

    def _show(self, part: str) -> str:
        if not _COLOUR.fullmatch(part):
            return _harmless(part)
        self._coloured = self._coloured or self._colours
        return part if self._colours else ""


def _harmless(text: str) -> str:
    if text.isprintable():
        return text
    # A carriage return alone would let a line cover what stood there before.
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(each if each.isprintable() or each in _KEPT else ascii(each)[1:-1] for each in text)
