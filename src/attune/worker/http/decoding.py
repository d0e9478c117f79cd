"""The bytes of an answer, decompressed and counted as they come: a small answer cannot become a large one unseen."""

import zlib
from collections.abc import AsyncIterable
from typing import Final

CONTENT_BYTES_MAX: Final = 10 * 1024 * 1024
# Understands the headers of gzip and of zlib.
_EITHER_HEADER: Final = zlib.MAX_WBITS | 32
ACCEPTED: Final = "gzip, deflate"
_COMPRESSED: Final = frozenset({"gzip", "x-gzip", "deflate"})


class AnswerTooLarge(Exception):
    """More was sent than is kept."""


class Undecodable(Exception):
    """The content is not in the encoding the answer claims."""


async def read_content(chunks: AsyncIterable[bytes], encoding: str, *, bytes_max: int = CONTENT_BYTES_MAX) -> bytes:
    """All of it; raises as soon as it is too much, before and after decompression."""
    plain = encoding.strip().lower()
    if plain and plain != "identity" and plain not in _COMPRESSED:
        raise Undecodable(f"the answer is encoded as {encoding!r}, and only {ACCEPTED} were asked for")
    inflate = _Inflate(bytes_max) if plain in _COMPRESSED else None
    content = bytearray()
    received = 0
    async for chunk in chunks:
        received += len(chunk)
        if received > bytes_max:
            raise _too_large(bytes_max)
        content += chunk if inflate is None else inflate.add(chunk)
    if inflate is not None:
        inflate.end()
    return bytes(content)


class _Inflate:
    """Never makes more than the limit, however much a chunk would unfold to."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._made = 0
        self._stream = zlib.decompressobj(_EITHER_HEADER)
        self._begun = False

    def add(self, chunk: bytes) -> bytes:
        made = bytearray()
        rest = chunk
        while rest:
            self._begun = True
            if self._stream.eof:  # Another member of the same file.
                self._stream = zlib.decompressobj(_EITHER_HEADER)
            try:
                piece = self._stream.decompress(rest, self._bytes_max - self._made + 1)
            except zlib.error as error:
                raise Undecodable(f"the answer cannot be decompressed: {error}") from None
            self._made += len(piece)
            if self._made > self._bytes_max:
                raise _too_large(self._bytes_max)
            made += piece
            rest = self._stream.unconsumed_tail or self._stream.unused_data
        return bytes(made)

    def end(self) -> None:
        if self._begun and not self._stream.eof:
            raise Undecodable("the compressed answer ends in its middle")


def _too_large(bytes_max: int) -> AnswerTooLarge:
    return AnswerTooLarge(f"the answer is larger than {bytes_max} bytes")
