"""YAML files are read by the rules of YAML 1.2, with the place of every part, and nothing can grow without bound."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attune.domain.json_values import Json
from attune.packs.problems import BadPack
from attune.packs.yaml_document import Position, read_document

# Characters that YAML wants escaped in another way than JSON does.
TEXT = st.text(
    st.characters(
        exclude_categories=("Cs", "Cn"), exclude_characters=[*map(chr, range(0x7F, 0xA0)), *"\u2028\u2029\ufeff"]
    ),
    max_size=20,
)
NUMBERS = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda part: st.lists(part, max_size=5) | st.dictionaries(TEXT, part, max_size=5),
    max_leaves=25,
)


def value_of(text: str) -> Json:
    return read_document(text.encode(), file="file.yaml").value


def problems_of(content: bytes | str) -> list[str]:
    with pytest.raises(BadPack) as refused:
        read_document(content.encode() if isinstance(content, str) else content, file="file.yaml")
    return [str(problem) for problem in refused.value.problems]


@given(document=DOCUMENTS, indent=st.sampled_from([None, 2]))
def test_a_json_document_reads_as_itself(document: Json, indent: int | None) -> None:
    assert value_of(json.dumps(document, ensure_ascii=False, indent=indent)) == document


@given(content=st.binary(max_size=200) | st.text(alphabet="ab:-[]{}&*!|>'\"#%\n \t?,0.", max_size=80).map(str.encode))
def test_whatever_the_content_is_it_reads_as_json_or_is_a_problem(content: bytes) -> None:
    with suppress(BadPack):
        json.dumps(read_document(content, file="file.yaml").value, allow_nan=False)


@pytest.mark.parametrize(
    "word", ["no", "No", "yes", "on", "off", "y", "12:30:45", "1_000", "2024-01-01", "0b1", "=", "<"]
)
def test_words_that_older_yaml_changes_stay_strings(word: str) -> None:
    assert value_of(f"key: {word}") == {"key": word}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0o17", 15),
        ("0x1F", 31),
        ("0777", 777),
        ("+5", 5),
        ("-0", 0),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("~", None),
        ("Null", None),
        ("", None),
        ("TRUE", True),
        ("'true'", "true"),
        ('"5"', "5"),
        ("|\n  5\n", "5\n"),
    ],
)
def test_plain_values_follow_the_core_schema(text: str, value: Json) -> None:
    read = value_of(f"key: {text}")
    assert read == {"key": value}
    assert isinstance(read, dict)
    assert type(read["key"]) is type(value)


def test_words_that_mean_something_elsewhere_can_be_keys() -> None:
    assert value_of("on: 1\nno: 2\n") == {"on": 1, "no": 2}


def test_a_key_given_twice_is_a_problem_with_both_places() -> None:
    assert problems_of("a: 1\nb:\n  c: 1\n  c: 2\n") == [
        "file.yaml:4:3: b.c: the key 'c' is given twice; first in line 3"
    ]


def test_all_problems_of_a_text_are_reported() -> None:
    text = "a: !!str 5\n1: x\nb: .nan\nc: *nothing\n<<: {d: 1}\n? [x]\n: y\nd: -.inf\ne: 1e999\n"
    assert [problem.split(":")[1] for problem in problems_of(text)] == ["1", "2", "3", "4", "5", "6", "8", "9"]


def test_broken_syntax_is_shown_where_it_is() -> None:
    assert problems_of("a: [1\nb: 2") == [
        "file.yaml:2:2: is not YAML: while parsing a flow sequence: did not find expected ',' or ']'"
    ]


@pytest.mark.parametrize("content", [b"", b"# only a comment\n", b"a: \xff", b"a: \x01", b"--- 1\n--- 2\n", b"\ta: 1"])
def test_what_is_no_single_document_is_refused(content: bytes) -> None:
    assert len(problems_of(content)) == 1


def test_an_alias_stands_for_its_value() -> None:
    assert value_of("a: &x {n: 1}\nb: *x\n") == {"a": {"n": 1}, "b": {"n": 1}}


def test_a_value_cannot_contain_itself() -> None:
    assert "names nothing that is complete before it" in problems_of("a: &x [*x]")[0]


def test_a_few_lines_cannot_stand_for_millions_of_values() -> None:
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert "more than 50000 values" in problems_of("\n".join(lines))[0]


def test_the_number_of_aliases_is_bounded() -> None:
    assert "more than 100 aliases" in problems_of("a: &a 1\nb: [" + "*a, " * 101 + "]")[0]


@pytest.mark.parametrize("depth", [70, 900, 100_000])
def test_the_depth_is_bounded(depth: int) -> None:
    assert problems_of("[" * depth + "]" * depth)


def test_the_size_is_bounded() -> None:
    assert "at most" in problems_of("a: " + "x" * 1_100_000)[0]


def test_an_integer_of_thousands_of_digits_is_refused() -> None:
    assert "more than 300 digits" in problems_of("a: " + "9" * 5000)[0]


def test_every_part_has_its_place() -> None:
    document = read_document(b"a: 1\nlist:\n  - x\n  - key: value\n'o/dd': 2\n", file="file.yaml")
    assert document.position("/list/1/key") == Position(line=4, column=10)
    assert document.position("/list/1/key", of_key=True) == Position(line=4, column=5)
    assert document.position("/o~1dd") == Position(line=5, column=9)
    assert document.position("/list/1/missing") == Position(line=4, column=5)
    assert document.position("/nothing/at/all") == Position(line=1, column=1)


def test_columns_count_characters_not_bytes() -> None:
    assert read_document("{ü: 1, b: 2}".encode(), file="file.yaml").position("/b") == Position(line=1, column=11)
