"""Which parameters are secret, wherever the schema says so."""

from __future__ import annotations

import pytest

from attune.domain.json_values import Json
from attune.domain.parameters import find_parameter_schema_errors
from attune.domain.secrecy.schema import find_secrets, is_secret_at
from attune.domain.secrecy.sealing import MARKER, list_texts, put_back, take_secrets

SECRET: dict[str, Json] = {"type": "string", "secret": True}
CASES: dict[str, tuple[dict[str, Json], dict[str, Json], list[tuple[str | int, ...]]]] = {
    "a property": ({"properties": {"a": SECRET}}, {"a": "x", "b": "y"}, [("a",)]),
    "a property below": (
        {"properties": {"a": {"properties": {"b": SECRET}}}},
        {"a": {"b": "x", "c": 1}, "b": "y"},
        [("a", "b")],
    ),
    "items": ({"properties": {"a": {"items": SECRET}}}, {"a": ["x", "y"]}, [("a", 0), ("a", 1)]),
    "items of objects": (
        {"properties": {"a": {"items": {"properties": {"k": SECRET}}}}},
        {"a": [{"k": "x"}, {"j": "y"}]},
        [("a", 0, "k")],
    ),
    "the first items": ({"properties": {"a": {"prefixItems": [{}, SECRET]}}}, {"a": ["x", "y", "z"]}, [("a", 1)]),
    "all other properties": (
        {"properties": {"a": {}}, "additionalProperties": SECRET},
        {"a": "x", "b": "y"},
        [("b",)],
    ),
    "properties of a pattern": ({"patternProperties": {"_key$": SECRET}}, {"a_key": "x", "b": "y"}, [("a_key",)]),
    "a pattern we cannot read": ({"patternProperties": {"(?<n>a)": SECRET}}, {"b": "y"}, [("b",)]),
    "a branch of anyOf": ({"properties": {"a": {"anyOf": [{"type": "null"}, SECRET]}}}, {"a": "x"}, [("a",)]),
    "a branch of oneOf": ({"oneOf": [{}, {"properties": {"a": SECRET}}]}, {"a": "x"}, [("a",)]),
    "a part of allOf": ({"allOf": [{"properties": {"a": SECRET}}]}, {"a": "x"}, [("a",)]),
    "a condition": ({"if": {}, "then": {"properties": {"a": SECRET}}}, {"a": "x"}, [("a",)]),
    "a reference": ({"$defs": {"s": SECRET}, "properties": {"a": {"$ref": "#/$defs/s"}}}, {"a": "x"}, [("a",)]),
    "a reference to an anchor": (
        {"$defs": {"s": {"$anchor": "s", "secret": True}}, "properties": {"a": {"$ref": "#s"}}},
        {"a": "x"},
        [("a",)],
    ),
    "a reference to itself": (
        {"properties": {"next": {"$ref": "#"}, "a": SECRET}},
        {"a": "x", "next": {"a": "y", "next": {"a": "z"}}},
        [("a",), ("next", "a"), ("next", "next", "a")],
    ),
    "references in a circle": (
        {"$defs": {"s": {"$ref": "#/$defs/t"}, "t": {"$ref": "#/$defs/s"}}, "properties": {"a": {"$ref": "#/$defs/s"}}},
        {"a": "x"},
        [],
    ),
    "a whole object": (
        {"properties": {"a": {"type": "object", "secret": True, "properties": {"b": SECRET}}}},
        {"a": {"b": "x"}},
        [("a",)],
    ),
    "a property that is called secret": ({"properties": {"secret": {"type": "string"}}}, {"secret": "x"}, []),
    "not secret": ({"properties": {"a": {"secret": False}}}, {"a": "x"}, []),
}


@pytest.mark.parametrize("case", CASES)
def test_secrets_are_found_at_every_depth(case: str) -> None:
    schema, document, places = CASES[case]

    assert sorted(find_secrets(schema, document), key=str) == sorted(places, key=str)


@pytest.mark.parametrize("case", CASES)
def test_what_is_taken_out_can_be_put_back(case: str) -> None:
    schema, document, places = CASES[case]

    shown, taken = take_secrets(schema, document)

    assert [each.path for each in taken] == list(find_secrets(schema, document))
    assert str(shown).count(MARKER) == len(places)
    assert put_back(shown, taken) == document
    assert all(str(each.value) not in repr(each) or each.value in ("a", "b") for each in taken)


def test_a_place_that_is_secret_or_holds_one_is_no_place_to_group_by() -> None:
    schema: dict[str, Json] = {"properties": {"auth": {"properties": {"password": SECRET}}, "host": {}}}

    assert is_secret_at(schema, ["auth", "password"])
    assert not is_secret_at(schema, ["auth", "user"])
    assert not is_secret_at(schema, ["host"])


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"properties": {"a": {"secret": True, "default": "x"}}}, "/properties/a/default"),
        ({"properties": {"a": {"secret": True, "enum": ["x"]}}}, "/properties/a/enum"),
        ({"properties": {"a": {"secret": "yes"}}}, "/properties/a/secret"),
        ({"secret": True}, "/secret"),
        (
            {"properties": {"a": {"default": {"b": "x"}, "properties": {"b": {"secret": True}}}}},
            "/properties/a/default",
        ),
        (
            {"$defs": {"s": {"secret": True}}, "properties": {"a": {"$ref": "#/$defs/s", "default": "x"}}},
            "/properties/a/default",
        ),
    ],
)
def test_a_schema_that_gives_a_secret_away_is_refused(schema: dict[str, Json], pointer: str) -> None:
    assert pointer in [error.pointer for error in find_parameter_schema_errors(schema)]


def test_a_sound_schema_with_secrets_is_accepted() -> None:
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {"token": SECRET, "n": {"type": "integer", "default": 1}},
    }

    assert find_parameter_schema_errors(schema) == []


def test_every_text_and_number_of_a_secret_is_known() -> None:
    assert list(list_texts({"a": ["x", 12, True, None], "b": {"c": 1.5}})) == ["x", "12", "1.5"]
