"""Secrets do not leave an attempt by what it prints."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attune.domain.json_values import Json
from attune.domain.secrecy.forms import LENGTH_MIN, list_forms
from attune.domain.secrecy.masking import HEAD_BYTES, Masker
from attune.domain.secrecy.sealing import MARKER

# A mask beside a text could by chance read like a secret that holds asterisks itself; nobody learns anything by that.
characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0*")
secrets = st.text(characters, min_size=LENGTH_MIN, max_size=40)
texts = st.text(characters, max_size=60)


def base64_after(before: int) -> Callable[[str], str]:
    return lambda secret: base64.b64encode(b"\1" * before + secret.encode() + b"\2").decode()


ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "json": lambda secret: json.dumps(secret)[1:-1],
    "json in json": lambda secret: json.dumps(json.dumps(secret)),
    "json as utf-8": lambda secret: json.dumps(secret, ensure_ascii=False)[1:-1],
    "url": quote,
    "url whole": lambda secret: quote(secret, safe=""),
    "form": quote_plus,
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "base64 after one": base64_after(1),
    "base64 after two": base64_after(2),
    "base64 after three": base64_after(3),
    "base64 for urls": lambda secret: base64.urlsafe_b64encode(secret.encode()).decode(),
    "hexadecimal": lambda secret: secret.encode().hex(),
    "shell": shlex.quote,
    "python": lambda secret: repr(secret)[1:-1],
}


def cut(content: bytes, places: list[int]) -> list[bytes]:
    borders = sorted({0, len(content), *(place % (len(content) + 1) for place in places)})
    return [content[start:end] for start, end in pairwise(borders)]


def stream(masker: Masker, pieces: list[bytes]) -> bytes:
    masked = masker.begin_stream()
    return b"".join(masked.add(piece) for piece in pieces) + masked.end()


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(secret=secrets, before=texts, after=texts, places=st.lists(st.integers(0, 10_000), max_size=12))
@settings(max_examples=60, deadline=None)
def test_no_form_of_a_secret_is_visible_however_it_is_cut_into_pieces(
    encoding: str, secret: str, before: str, after: str, places: list[int]
) -> None:
    masker = Masker([secret])
    content = (before + ENCODINGS[encoding](secret) + after).encode()

    shown = stream(masker, cut(content, places))

    assert not any(form in shown for form in list_forms(secret)), shown
    assert MARKER.encode() in shown
    assert shown == masker.mask_bytes(content)


@given(chosen=st.lists(secrets, max_size=4), text=texts, places=st.lists(st.integers(0, 10_000), max_size=12))
@settings(max_examples=200, deadline=None)
def test_text_without_secrets_stays_as_it_is(chosen: list[str], text: str, places: list[int]) -> None:
    content = text.encode()
    if any(form in content for secret in chosen for form in list_forms(secret)):
        return

    assert stream(Masker(chosen), cut(content, places)) == content
    assert Masker(chosen).mask_json({text: [text]}) == {text: [text]}


@given(
    chosen=st.lists(st.text("ab", min_size=6, max_size=9), min_size=1, max_size=3),
    text=st.text("abc", max_size=80),
    places=st.lists(st.integers(0, 100), max_size=30),
)
@settings(max_examples=300, deadline=None)
def test_secrets_that_overlap_are_covered_whole_and_the_pieces_do_not_matter(
    chosen: list[str], text: str, places: list[int]
) -> None:
    masker = Masker(chosen)

    shown = stream(masker, cut(text.encode(), places))

    assert shown == masker.mask_bytes(text.encode())
    covered = [False] * len(text)
    for secret in chosen:
        for start in range(len(text)):
            if text.startswith(secret, start):
                covered[start : start + len(secret)] = [True] * len(secret)
    uncovered = "".join(letter for letter, hidden in zip(text, covered, strict=True) if not hidden)
    assert shown.replace(MARKER.encode(), b"") == uncovered.encode()


def test_what_cannot_become_a_secret_is_shown_at_once() -> None:
    masked = Masker(["hunter2-hunter2"]).begin_stream()

    assert masked.add(b"working") == b"working"
    assert masked.add(b"... hun") == b"... "
    assert masked.add(b"dred") == b"hundred"
    assert masked.add(b" hunter2-hunter2") == b" ********"


def test_results_are_masked_in_values_keys_and_numbers() -> None:
    masker = Masker(["hunter2", "4711471147"])
    document: Json = {"hunter2": [1, {"a": "x hunter2 y"}], "n": 4711471147, "ok": True, "none": None}

    assert masker.mask_json(document) == {
        MARKER: [1, {"a": f"x {MARKER} y"}],
        "n": MARKER,
        "ok": True,
        "none": None,
    }


def test_without_secrets_nothing_is_copied() -> None:
    content, text = b"anything", "anything"
    document: Json = {"any": "thing"}
    masker = Masker()

    assert masker.begin_stream().add(content) is content
    assert masker.mask_text(text) is text
    assert masker.mask_json(document) is document


def test_a_value_that_is_too_short_is_not_masked() -> None:
    assert Masker(["12345"]).mask_text("12345 apples") == "12345 apples"


def test_each_line_of_a_key_is_masked_and_its_armour_is_not() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nBAQEFAASCBKcwggSjAgEAAo\n-----END KEY-----\n"
    shown = Masker([key]).mask_text("> -----BEGIN KEY-----\n> MIIEvQIBADANBgkqhkiG9w0\n> BAQEFAASCBKcwggSjAgEAAo\n")

    assert shown == "> -----BEGIN KEY-----\n> ********\n> ********\n"


@pytest.mark.parametrize("length", [HEAD_BYTES - 1, HEAD_BYTES, HEAD_BYTES + 1, 200_000])
def test_a_long_secret_is_covered_to_its_end_in_any_pieces(length: int) -> None:
    secret = "".join(f"{n:x}." for n in range(length))[:length]
    masker = Masker([secret])
    content = f"before {secret} between {secret.encode().hex()} after".encode()

    for size in (1000, 65_536):
        pieces = [content[start : start + size] for start in range(0, len(content), size)]
        assert stream(masker, pieces) == f"before {MARKER} between {MARKER} after".encode()
    assert masker.mask_end(content, keep=len(content) // 2).endswith(b" after")


def test_a_secret_of_very_many_lines_is_still_masked_as_a_whole() -> None:
    secret = "\n".join(f"line number {n} of a long document" for n in range(5000))

    assert Masker([secret]).mask_text(f"<{secret}>") == f"<{MARKER}>"


def test_base64_in_lines_is_masked() -> None:
    secret = "correct horse battery staple " * 8
    lines = base64.encodebytes(b"" + secret.encode() + b"\n").decode().splitlines()

    shown = [Masker([secret]).mask_text(line) for line in lines]

    assert all(MARKER in line for line in shown[:-1])
