"""The ways in which a secret is likely to be printed: as it is, or in one of the usual encodings."""

import base64
import html
import json
import re
import shlex
from collections.abc import Iterator
from itertools import islice
from urllib.parse import quote, quote_plus

# Shorter values are not masked: they would be found in everything, and the masks would tell what they are.
LENGTH_MIN = 6
# Of a secret of several lines each line is masked, too, if it is this long: shorter ones are braces and the like.
LINE_LENGTH_MIN = 12
# Beyond this many lines of one secret only the whole of it is looked for: each line costs as much as a secret.
LINES_MAX = 100
# Where base64 tools break lines: coreutils and Python, then OpenSSL.
_COLUMNS = (76, 64)
_ARMOUR = "-----"
# Nobody quotes or escapes these.
_WRITTEN_ALIKE = re.compile(r"[A-Za-z0-9_.-]+")
_UNSAFE_IN_SHELL = re.compile(r"([^\w@%+=:,./-])", re.ASCII)


def list_forms(secret: str) -> frozenset[bytes]:
    """Every form to look for, as UTF-8; none if the secret is too short to be masked."""
    if len(secret) < LENGTH_MIN:
        return frozenset()
    texts = {secret, *islice(filter(_is_telling, secret.splitlines()), LINES_MAX)}
    forms = {form.encode() for text in texts for form in _list_written(text)}
    forms |= set(_list_encoded(secret.encode()))
    return frozenset(form for form in forms if len(form) >= LENGTH_MIN)


def _is_telling(line: str) -> bool:
    return len(line) >= LINE_LENGTH_MIN and not line.startswith(_ARMOUR)


def _list_written(text: str) -> Iterator[str]:
    """As text in a document, a URL, a page or a command."""
    yield text
    if _WRITTEN_ALIKE.fullmatch(text):
        return
    for escaped in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
        yield escaped
        yield escaped.replace("/", "\\/")
        yield json.dumps(escaped)[1:-1]  # JSON within a text of JSON.
    yield repr(text)[1:-1]
    for quoted in (quote(text, safe=""), quote(text), quote_plus(text), quote_plus(text, safe="/")):
        yield quoted
        yield re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), quoted)
    yield html.escape(text)
    yield html.escape(text, quote=False)
    yield shlex.quote(text)
    yield shlex.quote(text).strip("'")
    yield text.replace("'", "'\\''")
    yield _UNSAFE_IN_SHELL.sub(r"\\\1", text)


def _list_encoded(content: bytes) -> Iterator[bytes]:
    """As bytes: hexadecimal, and base64 wherever in a longer text the secret begins."""
    yield content.hex().encode()
    yield content.hex().upper().encode()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(content)
        yield encode(content).rstrip(b"=")
        for before in range(3):
            # Only the characters that do not depend on the secret's neighbours.
            first, last = -(-before * 8 // 6), (before + len(content)) * 8 // 6
            inner = encode(b"\0" * before + content)[first:last]
            yield inner
            if before == 0:
                yield from _break(inner)


def _break(inner: bytes) -> Iterator[bytes]:
    for columns in _COLUMNS:
        lines = [inner[start : start + columns] for start in range(0, len(inner), columns)]
        if len(lines) > 1:
            yield from (line for line in lines[:LINES_MAX] if len(line) >= LINE_LENGTH_MIN)
