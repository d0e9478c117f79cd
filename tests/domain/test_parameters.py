"""Parameters are checked against the action's schema, completely, offline and without repeating values."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from attune.domain.errors import FieldError
from attune.domain.json_values import Json, join_pointer, split_pointer
from attune.domain.parameters import (
    BadParameters,
    BadSchema,
    apply_defaults,
    check_schema,
    parse_arguments,
    validate_output,
    validate_parameters,
)

SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 1},
        "host": {"type": "string", "default": "localhost"},
        "flag": {"type": "boolean"},
        "list": {"type": "array", "items": {"type": "integer"}},
        "ratio": {"type": ["number", "null"]},
        "options": {"type": "object", "properties": {"deep": {"type": "integer", "default": 7}}},
    },
    "required": ["n"],
    "additionalProperties": False,
}


def refusal(schema: dict[str, Json], parameters: object) -> dict[str, str]:
    with pytest.raises(BadParameters) as refused:
        validate_parameters(schema, parameters)
    return {error.pointer: error.message for error in refused.value.fields}


def schema_refusal(schema: object) -> dict[str, str]:
    with pytest.raises(BadSchema) as refused:
        check_schema(schema)
    return {error.pointer: error.message for error in refused.value.fields}


def test_every_error_is_named_by_its_pointer() -> None:
    errors = refusal(SCHEMA, {"n": 0, "list": [1, "x"], "hots": "a"})
    assert set(errors) == {"/n", "/list/1", "/hots"}
    assert errors["/hots"] == "unknown key 'hots'; did you mean 'host'?"
    assert errors["/list/1"] == "must be an integer, not a string"


def test_a_missing_parameter_is_named() -> None:
    assert refusal(SCHEMA, {}) == {"": "the key 'n' is missing"}


def test_an_error_never_repeats_the_value() -> None:
    schema: dict[str, Json] = {
        "properties": {
            "a": {"pattern": "^x$"},
            "b": {"anyOf": [{"type": "integer"}, {"const": 5}]},
            "c": {"maxLength": 2},
            "d": {"not": {"type": "string"}},
            "e": {"format": "date"},
            "f": {"oneOf": [{"maxLength": 3}, {"format": "email"}]},
        }
    }
    errors = refusal(schema, dict.fromkeys("abcdef", "s3cr3t"))
    assert set(errors) == {"/a", "/b", "/c", "/d", "/e", "/f"}
    assert "s3cr3t" not in json.dumps(errors)


def test_defaults_are_filled_in_at_the_top_and_in_objects_below() -> None:
    completed = validate_parameters(SCHEMA, {"n": 1, "options": {}})
    assert completed == {"n": 1, "host": "localhost", "options": {"deep": 7}}


def test_a_default_behind_a_reference_is_filled_in() -> None:
    schema: dict[str, Json] = {"$defs": {"port": {"default": 80}}, "properties": {"p": {"$ref": "#/$defs/port"}}}
    assert apply_defaults(schema, {}) == {"p": 80}


def test_the_callers_document_and_the_schema_are_left_alone() -> None:
    schema: dict[str, Json] = {"properties": {"tags": {"type": "array", "default": []}}}
    given: dict[str, Json] = {}
    completed = validate_parameters(schema, given)
    tags = completed["tags"]
    assert isinstance(tags, list)
    tags.append("changed")
    assert given == {}
    assert validate_parameters(schema, {}) == {"tags": []}


def test_defaults_of_a_schema_that_contains_itself_come_to_an_end() -> None:
    schema: dict[str, Json] = {"properties": {"next": {"$ref": "#", "default": {}}}}
    check_schema(schema)
    with pytest.raises(BadParameters):
        validate_parameters({"properties": {"x": {"$ref": "#/properties/x", "default": {}}}, "required": ["y"]}, {})
    validate_parameters(schema, {})


def test_a_zero_character_is_refused_with_its_place() -> None:
    errors = refusal({}, {"a": {"b": ["ok", "x\0y"]}, "bad\0key": 1})
    assert set(errors) == {"/a/b/1", ""}
    assert "U+0000" in errors["/a/b/1"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", 1 << 5000, object()])
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    assert set(refusal({}, {"a": value})) == {"/a"}


def test_a_document_nested_too_deeply_is_refused_without_recursion() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    errors = refusal({}, {"a": nested})
    assert "deeper" in next(iter(errors.values()))


def test_a_document_that_is_too_large_is_refused() -> None:
    assert "bytes long" in refusal({}, {"a": "x" * 1_100_000})[""]


def test_the_list_of_errors_is_bounded() -> None:
    errors = refusal({"additionalProperties": {"type": "string"}}, {str(number): number for number in range(1000)})
    assert len(errors) == 50


def test_parameters_that_are_no_object_are_refused() -> None:
    assert refusal({}, [1]) == {"": "must be an object"}


@contextmanager
def a_server_that_counts() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/schema.json", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_reference_to_a_web_address_is_refused_and_never_fetched() -> None:
    with a_server_that_counts() as (address, asked):
        errors = schema_refusal({"properties": {"a": {"$ref": address}}})
        # Even where the first check cannot look, because the name reads like a value.
        hidden = schema_refusal({"properties": {"default": {"$ref": address}}})
        moved = schema_refusal({"$id": address, "properties": {"a": {"$ref": "other.json"}}})
    assert set(errors) == {"/properties/a/$ref"}
    assert hidden
    assert moved
    assert asked == []


def test_a_reference_to_a_file_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "schema.json"
    target.write_text("{}")
    assert schema_refusal({"$ref": target.as_uri()})


def test_a_schema_is_refused_with_the_place_of_each_mistake() -> None:
    errors = schema_refusal({"properties": {"a": {"type": "strng"}, "b": {"pattern": "("}}, "required": "a"})
    assert set(errors) == {"/properties/a/type", "/properties/b/pattern", "/required"}
    assert "did you mean 'string'" in errors["/properties/a/type"]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/missing"},
        {"type": "array"},
        {"$schema": "http://json-schema.org/draft-07/schema#"},
        [],
        {"properties": {"n": {"type": "integer", "default": "x"}}},
    ],
)
def test_a_schema_that_could_not_serve_is_refused(schema: object) -> None:
    assert schema_refusal(schema)


def test_a_hostile_pattern_takes_no_time() -> None:
    schema: dict[str, Json] = {"properties": {"a": {"pattern": "^(a+)+$"}}}
    assert set(refusal(schema, {"a": "a" * 5000 + "!"})) == {"/a"}


def test_output_is_checked_like_parameters() -> None:
    assert validate_output({"type": "object"}, {"a": 1}) == []
    assert validate_output({"type": "object"}, "a") == [
        FieldError(pointer="", message="must be an object, not a string")
    ]


def test_arguments_are_read_as_the_schema_says() -> None:
    words = ["n=1", "flag=true", "list=[1,2]", "host=5", "ratio=0.5", 'options={"deep": 1}', "extra=x=y"]
    assert parse_arguments(SCHEMA, words) == {
        "n": 1,
        "flag": True,
        "list": [1, 2],
        "host": "5",
        "ratio": 0.5,
        "options": {"deep": 1},
        "extra": "x=y",
    }


def test_a_parameter_of_several_types_is_read_as_the_narrowest() -> None:
    assert parse_arguments(SCHEMA, ["ratio=null"]) == {"ratio": None}
    assert parse_arguments({"properties": {"a": {"type": ["string", "integer"]}}}, ["a=5"]) == {"a": 5}
    assert parse_arguments({"properties": {"a": {"type": ["string", "integer"]}}}, ["a=five"]) == {"a": "five"}


def test_arguments_that_cannot_be_read_are_all_named() -> None:
    with pytest.raises(BadParameters) as refused:
        parse_arguments(SCHEMA, ["n=one", "flag=yes", "alone", "host=a", "host=b", "list={}"])
    assert [error.pointer for error in refused.value.fields] == ["/n", "/flag", "", "/host", "/list"]


def test_pointers_survive_every_character() -> None:
    parts = ["a/b", "~", "~1", "", "ü"]
    assert split_pointer(join_pointer(parts)) == parts
