"""Takes secrets out of text by their value, whatever pieces it arrives in.

Every occurrence of every form is found, also where several overlap; what they cover together becomes one mask. Text
in which no form occurs comes back as it was.
"""

from collections.abc import Iterable, Iterator

from attune.domain.json_values import Json
from attune.domain.secrecy.forms import list_forms
from attune.domain.secrecy.sealing import MARKER

_MASK = MARKER.encode()
# A longer form is known by its beginning, and covers what follows up to its length.
HEAD_BYTES = 1024
# Between texts that are searched together; no form contains it, because it is not UTF-8.
_BETWEEN = b"\xff"
_ENCODING = {"encoding": "utf-8", "errors": "surrogatepass"}


class Masker:
    """What must not be seen of one attempt; without secrets everything passes as it is."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # How much each covers. One that contains another is found by it, but covers more: both are needed.
        self._forms: dict[bytes, int] = {}
        for secret in secrets:
            for form in list_forms(secret):
                head = form[:HEAD_BYTES]
                self._forms[head] = max(len(form), self._forms.get(head, 0))
        self._by_first_byte: dict[int, list[bytes]] = {}
        for form in self._forms:
            self._by_first_byte.setdefault(form[0], []).append(form)
        self._longest_head = max(map(len, self._forms), default=0)
        # How many bytes the longest form has.
        self.reach = max(self._forms.values(), default=0)

    def __bool__(self) -> bool:
        return bool(self._forms)

    def mask_bytes(self, content: bytes) -> bytes:
        """The whole of something."""
        if not self._forms:
            return content
        stream = self.begin_stream()
        return stream.add(content) + stream.end()

    def mask_end(self, content: bytes, *, keep: int) -> bytes:
        """The last so many bytes, masked; what is before them must reach back as far as a secret does."""
        begin = max(0, len(content) - keep)
        for start, end in self.find_spans(content):
            if start < begin < end:
                begin = start
        return self.mask_bytes(content[begin:])

    def mask_text(self, text: str) -> str:
        """A text; the same object if there is nothing to mask."""
        if not self._forms:
            return text
        content = text.encode(**_ENCODING)
        masked = self.mask_bytes(content)
        return text if masked == content else masked.decode(**_ENCODING)

    def mask_json(self, document: Json) -> Json:
        """A document: its texts, its numbers and its keys."""
        if not self._forms:
            return document
        everything = _BETWEEN.join(text.encode(**_ENCODING) for text in _list_texts(document))
        if not any(form in everything for form in self._forms):
            return document
        return self._mask_node(document)

    def begin_stream(self) -> "MaskStream":
        """For something that arrives in pieces."""
        return MaskStream(self)

    def find_spans(self, content: bytes) -> list[tuple[int, int]]:
        """What the forms cover, in order; neighbours that touch are one."""
        found = []
        for form, length in self._forms.items():
            start = content.find(form)
            while start >= 0:
                found.append((start, start + length))
                start = content.find(form, start + 1)
        return _merge(found)

    def find_beginning(self, content: bytes) -> int:
        """Where a form begins that goes on beyond the end; the end itself if none does."""
        for start in range(max(0, len(content) - self._longest_head + 1), len(content)):
            forms = self._by_first_byte.get(content[start])
            if forms and self._begins(forms, content[start:]):
                return start
        return len(content)

    @staticmethod
    def _begins(forms: Iterable[bytes], rest: bytes) -> bool:
        return any(len(form) > len(rest) and form.startswith(rest) for form in forms)

    def _mask_node(self, node: Json) -> Json:
        if isinstance(node, str):
            return self.mask_text(node)
        if isinstance(node, dict):
            return {self.mask_text(key): self._mask_node(value) for key, value in node.items()}
        if isinstance(node, list):
            return [self._mask_node(item) for item in node]
        if isinstance(node, int | float) and not isinstance(node, bool):
            text = repr(node)
            masked = self.mask_text(text)
            return node if masked is text else masked
        return node


class MaskStream:
    """One stream, masked: what could be the beginning of a secret waits for what follows it."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = b""
        # How much of what is held was already shown as a mask, and whether a mask was the last thing shown.
        self._covered = 0
        self._open = False

    def add(self, content: bytes) -> bytes:
        """What can be shown now."""
        if not self._masker:
            return content
        content = self._held + content
        return self._show(content, self._masker.find_beginning(content))

    def end(self) -> bytes:
        """The rest."""
        return self._show(self._held, len(self._held)) if self._held else b""

    def _show(self, content: bytes, until: int) -> bytes:
        if until == 0:
            self._held = content
            return b""
        spans = self._masker.find_spans(content)
        if self._covered:
            spans = _merge([(0, self._covered), *spans])
        shown = []
        position = 0
        for start, end in spans:
            if start >= until:
                break
            shown.append(content[position:start])
            if start > 0 or not self._open:
                shown.append(_MASK)
            position = end
        self._covered = max(0, position - until)
        self._open = position >= until
        if position < until:
            shown.append(content[position:until])
        self._held = content[until:]
        return b"".join(shown)


def _merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _list_texts(node: Json) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield key
            yield from _list_texts(value)
    elif isinstance(node, list):
        for item in node:
            yield from _list_texts(item)
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield repr(node)
