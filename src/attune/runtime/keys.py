"""Seals secrets before they are stored, and keeps the key that does it.

A sealed value is: version (1 byte), key id (8), nonce (12), ciphertext with tag. AES-256-GCM; the context
(table, row and field) is authenticated too, so a sealed value moved to another place does not open.
"""

import base64
import binascii
import contextlib
import hashlib
import os
import stat
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from attune.runtime.clock import random_bytes

KEY_BYTES: Final = 32
_VERSION: Final = 1
_KEY_ID_BYTES: Final = 8
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_HEADER_BYTES: Final = 1 + _KEY_ID_BYTES
_KEY_FILE_MAX_BYTES: Final = 1024


class SealBroken(Exception):
    """A sealed value cannot be opened; the message says why and never what was inside."""


class KeyFileUnusable(Exception):
    """The key file is missing, damaged or open to others; the message names the cure."""


def sealing_context(table: str, row: int | str, field: str) -> str:
    """Name the one place a sealed value belongs to."""
    return f"{table}/{row}/{field}"


def key_id(key: bytes) -> bytes:
    """A short public name of a key, so that a value says which key it needs."""
    return hashlib.sha256(b"attune key id" + key).digest()[:_KEY_ID_BYTES]


def seal(key: bytes, plaintext: bytes, *, context: str) -> bytes:
    """Encrypt for one place; the same text never gives the same bytes twice."""
    header = bytes([_VERSION]) + key_id(key)
    nonce = random_bytes(_NONCE_BYTES)
    return header + nonce + AESGCM(_checked(key)).encrypt(nonce, plaintext, header + context.encode())


def open_sealed(key: bytes, sealed: bytes, *, context: str) -> bytes:
    """Decrypt what was sealed with this key for this very place."""
    if len(sealed) < _HEADER_BYTES + _NONCE_BYTES + _TAG_BYTES:
        raise SealBroken("the sealed value is too short")
    if sealed[0] != _VERSION:
        raise SealBroken(f"the sealed value has version {sealed[0]}; this release reads version {_VERSION}")
    header, rest = sealed[:_HEADER_BYTES], sealed[_HEADER_BYTES:]
    if header[1:] != key_id(key):
        raise SealBroken(f"sealed with key {header[1:].hex()}, but the key at hand is {key_id(key).hex()}")
    try:
        return AESGCM(_checked(key)).decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], header + context.encode())
    except InvalidTag:
        raise SealBroken(f"the sealed value was changed, or belongs to another place than {context}") from None


def load_or_create_key(path: Path) -> bytes:
    """Read the key, or make one, once: of several processes that start together all get the same."""
    try:
        return load_key(path)
    except FileNotFoundError:
        _create_key(path)
        return load_key(path)


def load_key(path: Path) -> bytes:
    """Read the key; refuses a file that others may read or that somebody else owns."""
    with path.open("rb") as file:
        _check_private(path, os.fstat(file.fileno()))
        text = file.read(_KEY_FILE_MAX_BYTES).strip()
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise KeyFileUnusable(f"{path} does not hold a key; restore it from a backup")
    return key


def _checked(key: bytes) -> bytes:
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
    return key


def _check_private(path: Path, status: os.stat_result) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise KeyFileUnusable(f"{path} is open to others (mode {mode:04o}); run: chmod 600 {path}")
    if status.st_uid not in {0, os.geteuid()}:
        raise KeyFileUnusable(f"{path} belongs to user {status.st_uid}, not to the user of this process")


def _create_key(path: Path) -> None:
    """Write beside and link into place, so that nobody ever sees half a key or replaces one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{random_bytes(8).hex()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(base64.b64encode(random_bytes(KEY_BYTES)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # Another process was first; its key counts.
            os.link(draft, path)
    finally:
        draft.unlink()
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Make the new name itself durable: sealed values outlive a power cut, so must their key."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
