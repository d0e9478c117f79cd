"""An attempt's output on its way to the log: decoded, cut, counted, and written in few transactions.

Both streams share one count, so that the log shows lines in the order in which they were read.
"""

import asyncio
import codecs
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from attune.domain.secrecy.masking import Masker, MaskStream
from attune.storage.assignments import Held
from attune.storage.output.execution_logs import Chunk
from attune.worker.results import storable_text
from attune.worker.runners.protocol import Stream

# Of each stream this much is kept; the rest is counted.
STREAM_BYTES_MAX: Final = 10 * 1024 * 1024
# A longer line is cut: nobody reads it, and some viewers do not survive it.
LINE_CHARACTERS_MAX: Final = 64 * 1024
CHUNK_CHARACTERS_MAX: Final = 64 * 1024
# How long output may wait for company. What a short action prints travels with the report of its end.
LINGER_SECONDS: Final = 0.25
# With more than this unwritten, the action waits for the database.
PENDING_CHARACTERS_MAX: Final = 1024 * 1024

WriteChunks = Callable[[Sequence[Chunk]], Awaitable[None]]


class _Text:
    """One stream as storable text; masked before anything is cut, or the rest of a secret could stay."""

    def __init__(self, mask: MaskStream) -> None:
        self._mask = mask
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = 0
        self._dropped = 0
        self._line = 0

    def add(self, content: bytes) -> str:
        if self._kept >= STREAM_BYTES_MAX:
            self._dropped += len(content)
            return ""
        return self._keep(self._mask.add(content))

    def end(self) -> str:
        rest = self._keep(self._mask.end()) if self._kept < STREAM_BYTES_MAX else ""
        rest += self._cut(storable_text(self._decoder.decode(b"", final=True)))
        return f"{rest}\n[truncated: {self._dropped} more bytes]\n" if self._dropped else rest

    def _keep(self, content: bytes) -> str:
        kept = content[: max(0, STREAM_BYTES_MAX - self._kept)]
        self._kept += len(kept)
        self._dropped += len(content) - len(kept)
        return self._cut(storable_text(self._decoder.decode(kept))) if kept else ""

    def _cut(self, text: str) -> str:
        if self._line + len(text) <= LINE_CHARACTERS_MAX:
            newline = text.rfind("\n")
            self._line = self._line + len(text) if newline < 0 else len(text) - newline - 1
            return text
        first, *others = text.split("\n")
        pieces = [self._cut_line(first)]
        for line in others:
            self._line = 0
            pieces.append(self._cut_line(line))
        return "\n".join(pieces)

    def _cut_line(self, line: str) -> str:
        room = LINE_CHARACTERS_MAX - self._line
        self._line += len(line)
        if len(line) <= room:
            return line
        # Said once for each line, however many pieces it arrives in.
        return f"{line[:room]} [line cut]" if room >= 0 else ""


class AttemptOutput:
    """Keeps what one attempt prints; `close` gives back what was not written yet, to go with the report."""

    def __init__(self, held: Held, write_chunks: WriteChunks) -> None:
        self._held = held
        self._write_chunks = write_chunks
        # Set before anything is written, as soon as it is known what must not be seen.
        self.masker = Masker()
        self._texts: dict[Stream, _Text] = {}
        self._pending: list[tuple[Stream, str]] = []
        self._pending_characters = 0
        self._seq = 0
        self._flushing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def write(self, stream: Stream, content: bytes) -> None:
        text = self._text(stream).add(content)
        self._append(stream, text)
        if self._pending_characters >= CHUNK_CHARACTERS_MAX:
            self._flush()
        elif self._pending and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._flush)
        while self._pending_characters > PENDING_CHARACTERS_MAX and self._flushing is not None:
            await asyncio.shield(self._flushing)

    async def close(self) -> list[Chunk]:
        """Everything that is not stored yet, after waiting for what is being stored."""
        while self._flushing is not None:
            await asyncio.shield(self._flushing)
        self._stop_timer()
        for stream, text in self._texts.items():
            self._append(stream, text.end())
        return self._take()

    def discard(self) -> None:
        """Nobody may write for this attempt any more."""
        self._stop_timer()
        self._pending.clear()
        if self._flushing is not None:
            self._flushing.cancel()

    def _text(self, stream: Stream) -> _Text:
        if stream not in self._texts:
            self._texts[stream] = _Text(self.masker.begin_stream())
        return self._texts[stream]

    def _append(self, stream: Stream, text: str) -> None:
        if text:
            self._pending.append((stream, text))
            self._pending_characters += len(text)

    def _flush(self) -> None:
        self._stop_timer()
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._write_pending(), name="output")

    async def _write_pending(self) -> None:
        try:
            while chunks := self._take():
                await self._write_chunks(chunks)
        finally:
            self._flushing = None

    def _take(self) -> list[Chunk]:
        """Neighbours of one stream become one chunk, up to its largest size."""
        pieces: list[tuple[Stream, str]] = []
        for stream, text in self._pending:
            if pieces and pieces[-1][0] is stream and len(pieces[-1][1]) + len(text) <= CHUNK_CHARACTERS_MAX:
                pieces[-1] = (stream, pieces[-1][1] + text)
            else:
                pieces.append((stream, text))
        self._pending.clear()
        self._pending_characters = 0
        first = self._seq + 1
        self._seq += len(pieces)
        return [
            Chunk(held=self._held, stream=stream, seq=seq, content=text)
            for seq, (stream, text) in enumerate(pieces, start=first)
        ]

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
