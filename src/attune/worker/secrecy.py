"""What one attempt may know and nobody else may see: its secret parameters and its token."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from attune.domain.definitions import Runner
from attune.domain.json_values import Json, join_pointer
from attune.domain.retry import Ending, Large
from attune.domain.secrecy.forms import LENGTH_MIN
from attune.domain.secrecy.masking import Masker
from attune.domain.secrecy.sealing import list_texts, put_back
from attune.operations.access.seal_parameters import open_parameters
from attune.runtime.keys import SealBroken
from attune.runtime.passwords import mint_attempt_token
from attune.runtime.vault import NoKey, Vault
from attune.storage.assignments import Held
from attune.storage.executions import Startable

_STEP_BYTES: Final = 256 * 1024
_INSIDE: Final = frozenset({Runner.NATIVE, Runner.HTTP})


class Unopened(Exception):
    """The secrets cannot be opened here; the code and message are the execution's error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Confided:
    """The work with its secrets in their places, and what must not be seen of it."""

    work: Startable
    token: str | None
    masker: Masker
    # Parameters whose values are too short to be masked.
    unmasked: tuple[str, ...] = ()


def confide(vault: Vault, work: Startable, held: Held) -> Confided:
    """Open what was sealed for this execution; raises Unopened."""
    # What runs inside the worker has no use for a token, and then need not be searched for one.
    inside = work.runner in _INSIDE
    token = None if inside else mint_attempt_token(held.execution_id, held.attempt, held.lease)
    handed = [token] if token else []
    if work.sealed is None:
        return Confided(work=work, token=token, masker=Masker(handed))
    try:
        taken = open_parameters(vault, work.execution_id, work.sealed)
    except NoKey as error:
        raise Unopened("no_key", str(error)) from None
    except SealBroken as error:
        raise Unopened("seal_broken", f"its secret parameters cannot be opened: {error}") from None
    shown: Mapping[str, Json] = work.parameters if isinstance(work.parameters, dict) else {}
    try:
        whole = put_back(shown, taken)
    except (LookupError, TypeError):
        raise Unopened("seal_broken", "its parameters no longer have the places its secrets belong to") from None
    texts = [(each.path, text) for each in taken for text in list_texts(each.value)]
    return Confided(
        work=replace(work, parameters=whole, sealed=None),
        token=token,
        masker=Masker([*handed, *(text for _, text in texts)]),
        unmasked=tuple(dict.fromkeys(join_pointer(path) for path, text in texts if len(text) < LENGTH_MIN)),
    )


def mask_ending(masker: Masker, ending: Ending) -> Ending:
    """An ending as it may be written down."""
    failure = ending.failure
    if failure is not None:
        failure = replace(failure, message=masker.mask_text(failure.message))
    return replace(ending, result=masker.mask_json(ending.result), failure=failure)


def mask_large(masker: Masker, large: Large) -> Large:
    """A large result as it may be stored. Takes its time, in small steps: to be called in a thread."""
    if not masker:
        return large
    stream = masker.begin_stream()
    pieces = [
        stream.add(large.content[start : start + _STEP_BYTES]) for start in range(0, len(large.content), _STEP_BYTES)
    ]
    masked = b"".join([*pieces, stream.end()])
    if masked != large.content and large.media_type == "application/json" and not _is_json(masked):
        # A secret that was a number left a hole: then value by value.
        masked = msgspec.json.encode(masker.mask_json(msgspec.json.decode(large.content)))
    return replace(large, content=masked)


def _is_json(content: bytes) -> bool:
    try:
        msgspec.json.decode(content, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True
