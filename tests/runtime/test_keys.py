"""What is promised about sealing: only the right key in the right place opens, and the key file is private."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attune.runtime.keys import (
    KeyFileUnusable,
    SealBroken,
    load_or_create_key,
    open_sealed,
    seal,
    sealing_context,
)

KEY = bytes(range(32))
PLACE = sealing_context("key", 7, "value")


@given(plaintext=st.binary(max_size=500), context=st.text(max_size=50))
def test_what_was_sealed_opens_in_the_same_place(plaintext: bytes, context: str) -> None:
    try:
        context.encode()
    except UnicodeEncodeError:
        return
    assert open_sealed(KEY, seal(KEY, plaintext, context=context), context=context) == plaintext


@given(plaintext=st.binary(max_size=40), data=st.data())
def test_any_changed_bit_is_noticed(plaintext: bytes, data: st.DataObject) -> None:
    sealed = bytearray(seal(KEY, plaintext, context=PLACE))
    position = data.draw(st.integers(0, len(sealed) - 1))
    sealed[position] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(SealBroken):
        open_sealed(KEY, bytes(sealed), context=PLACE)


def test_another_key_is_named_rather_than_tried() -> None:
    with pytest.raises(SealBroken, match=r"sealed with key [0-9a-f]{16}, but the key at hand is"):
        open_sealed(bytes(32), seal(KEY, b"x", context=PLACE), context=PLACE)


def test_a_sealed_value_does_not_open_in_another_row() -> None:
    with pytest.raises(SealBroken, match="belongs to another place than key/8/value"):
        open_sealed(KEY, seal(KEY, b"x", context=PLACE), context=sealing_context("key", 8, "value"))


def test_a_truncated_value_is_refused() -> None:
    with pytest.raises(SealBroken, match="too short"):
        open_sealed(KEY, seal(KEY, b"", context=PLACE)[:-1], context=PLACE)


def test_the_same_text_never_looks_the_same_twice() -> None:
    assert seal(KEY, b"x", context=PLACE) != seal(KEY, b"x", context=PLACE)


def test_a_key_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        seal(b"short", b"x", context=PLACE)


def test_the_key_file_is_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "master.key"

    key = load_or_create_key(path)

    assert len(key) == 32
    assert load_or_create_key(path) == key
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [one.name for one in path.parent.iterdir()] == ["master.key"]


def test_processes_that_start_together_agree_on_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        keys = set(threads.map(load_or_create_key, [tmp_path / "master.key"] * 32))

    assert len(keys) == 1


def test_a_key_file_open_to_others_is_refused_with_the_cure(tmp_path: Path) -> None:
    path = tmp_path / "master.key"
    load_or_create_key(path)
    path.chmod(0o640)

    with pytest.raises(KeyFileUnusable, match=r"mode 0640\); run: chmod 600"):
        load_or_create_key(path)


@pytest.mark.parametrize("content", ["", "not base64!", "c2hvcnQ=", "ü"])
def test_a_damaged_key_file_is_refused_and_left_as_it_is(tmp_path: Path, content: str) -> None:
    path = tmp_path / "master.key"
    path.write_text(content)
    path.chmod(0o600)

    with pytest.raises(KeyFileUnusable, match="does not hold a key"):
        load_or_create_key(path)
    assert path.read_text() == content
