"""Names of packs and of the things in them: `core` is a pack, `core.http.get` is the object `http.get` in it.

The first dot ends the pack. Names are lower case, so that a name typed by hand, in a URL or in a file is the same name.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from attune.domain.errors import Invalid

PACK_REF_LENGTH_MAX = 64
REF_LENGTH_MAX = 200
# Below this likeness a suggestion puzzles more than it helps.
LIKENESS_MIN = 0.6

PACK_REF_PATTERN = r"^[a-z][a-z0-9_]{0,63}$"
REF_PATTERN = r"^[a-z][a-z0-9_]{0,63}(\.[a-z0-9_]+)+$"

_RULE = "lower-case letters, digits and underscores"


class BadRef(Invalid):
    """A reference that no pack and no object can have."""

    code = "bad_ref"


def parse_pack_ref(text: str) -> str:
    """Give back a pack's reference unchanged, or say what is wrong with it."""
    if re.fullmatch(PACK_REF_PATTERN, text):
        return text
    message = (
        f"{shown(text)} is not a pack reference: it must be {_RULE}, "
        f"begin with a letter and have at most {PACK_REF_LENGTH_MAX} characters"
    )
    raise BadRef(message + _suggest_repair(text.partition(".")[0], PACK_REF_PATTERN))


def parse_ref(text: str) -> str:
    """Give back an object's reference unchanged, or say what is wrong with it."""
    if re.fullmatch(REF_PATTERN, text) and len(text) <= REF_LENGTH_MAX:
        return text
    message = (
        f"{shown(text)} is not a reference: it must be pack.name, with {_RULE} between the dots, "
        f"begin with a letter and have at most {REF_LENGTH_MAX} characters"
    )
    raise BadRef(message + _suggest_repair(text, REF_PATTERN))


def pack_of(ref: str) -> str:
    """The pack an object belongs to: everything before the first dot."""
    return ref.partition(".")[0]


def name_of(ref: str) -> str:
    """The object's name inside its pack: everything after the first dot."""
    return ref.partition(".")[2]


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like a mistyped name, or None when nothing is alike."""
    found = get_close_matches(name.lower(), sorted(set(candidates)), n=1, cutoff=LIKENESS_MIN)
    return found[0] if found else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """The end of an error message: a suggestion, or nothing."""
    candidate = nearest(name, candidates)
    return f"; did you mean {candidate!r}?" if candidate else ""


def shown(text: str) -> str:
    """A name as an error message may show it: quoted, and cut where it is absurdly long."""
    return repr(text if len(text) <= PACK_REF_LENGTH_MAX else text[:PACK_REF_LENGTH_MAX] + "…")


def _suggest_repair(text: str, pattern: str) -> str:
    repaired = re.sub(r"[^a-z0-9_.]+", "_", text.strip().lower())
    return f"; did you mean {repaired!r}?" if repaired != text and re.fullmatch(pattern, repaired) else ""
