"""Prints what commands found: data on stdout in the form asked for, talk on stderr.

`json` is the API's own body, byte for byte. Tables are for people; rich draws them on a terminal only.
"""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

Record = Mapping[str, object]

CELL_CHARACTERS_MAX: Final = 60  # Longer cells are cut in `table`, never in `wide`.
_GAP: Final = "  "


class Format(StrEnum):
    """The forms output can take."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    VALUE = "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table; `wide` ones are shown only when asked for."""

    title: str
    cell: Callable[[Record], object]
    wide: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How one kind of thing is shown: its columns, what names it, and what its single value is."""

    columns: Sequence[Column]
    name: str
    value: str | None = None


def column(title: str, key: str | None = None, *, wide: bool = False) -> Column:
    """A column that shows one field as it is."""
    field = key or title
    return Column(title=title, cell=lambda record: record.get(field), wide=wide)


def show(body: bytes, view: View, output: Format) -> None:
    """Print an answer of the API: one thing, or a list of them."""
    if output is Format.JSON:
        sys.stdout.buffer.write(body if body.endswith(b"\n") else body + b"\n")
        return
    import msgspec

    decoded = msgspec.json.decode(body)
    if output is Format.YAML:
        print_yaml(decoded)
    else:
        show_records(_records_of(decoded), view, output)


def show_document(document: object, view: View, records: Iterable[Record], output: Format) -> None:
    """Print something that did not come from the API: the document for machines, the records for people."""
    if output is Format.JSON:
        import msgspec

        sys.stdout.buffer.write(msgspec.json.encode(document) + b"\n")
    elif output is Format.YAML:
        print_yaml(document)
    else:
        show_records(list(records), view, output)


def show_records(records: Sequence[Record], view: View, output: Format) -> None:
    """Print records as a table, or one field of each."""
    if output in {Format.NAME, Format.VALUE}:
        field = view.name if output is Format.NAME or view.value is None else view.value
        for record in records:
            print(plain(record.get(field)))
        return
    wide = output is Format.WIDE
    columns = [each for each in view.columns if wide or not each.wide]
    rows = [[_cut(plain(each.cell(record)), wide=wide) for each in columns] for record in records]
    print_table([each.title for each in columns], rows)


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns; with lines and colours only where a person looks."""
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        _print_rich(titles, rows)
        return
    shown = [[title.upper().replace("_", " ") for title in titles], *rows]
    widths = [max(len(row[index]) for row in shown) for index in range(len(titles))]
    for row in shown:
        print(_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print one thing as `name: value` lines, values aligned."""
    lines = [(name, plain(value)) for name, value in fields if value not in (None, "")]
    width = max((len(name) for name, _ in lines), default=0)
    for name, value in lines:
        print(f"{name + ':':<{width + 1}} {value}")


def print_yaml(document: object) -> None:
    import yaml

    yaml.dump(document, sys.stdout, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)


def plain(value: object) -> str:
    """A value as text for a person; control characters are shown, not obeyed by the terminal."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        import msgspec

        value = msgspec.json.encode(value).decode()
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in str(value))


def talk(text: str) -> None:
    """Say something to the person; never mixed with data."""
    print(text, file=sys.stderr, flush=True)


def _records_of(decoded: object) -> list[Record]:
    if isinstance(decoded, dict) and isinstance(decoded.get("items"), list):
        decoded = decoded["items"]
    each = decoded if isinstance(decoded, list) else [decoded]
    return [record for record in each if isinstance(record, dict)]


def _cut(text: str, *, wide: bool) -> str:
    return text if wide or len(text) <= CELL_CHARACTERS_MAX else f"{text[: CELL_CHARACTERS_MAX - 1]}…"


def _print_rich(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in titles:
        table.add_column(title.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)
