"""Which exit code each failure asks for."""

import importlib

import pytest

from attune.cli.exits import _EXIT_BY_CLASS, CommandFailed, Exit, database_errors, describe, exit_code_of
from attune.domain.errors import Conflict, FieldError, Forbidden, Invalid, NotFound, Unavailable
from attune.storage.migrate import SchemaMismatch


@pytest.mark.parametrize("name", sorted(_EXIT_BY_CLASS))
def test_every_family_in_the_table_exists(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    assert issubclass(found, Exception)
    assert (found.__module__, found.__qualname__) == (module, attribute)


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (Invalid("x"), Exit.INVALID),
        (NotFound("x"), Exit.NOT_FOUND),
        (Forbidden("x"), Exit.AUTH),
        (Conflict("x"), Exit.INVALID),
        (Unavailable("x"), Exit.UNREACHABLE),
        (SchemaMismatch("x"), Exit.INVALID),
        (CommandFailed("x", exit_code=Exit.TIMEOUT), Exit.TIMEOUT),
        (ValueError("a bug"), None),
    ],
)
def test_a_family_decides_the_exit_code(error: Exception, wanted: Exit | None) -> None:
    assert exit_code_of(error) is wanted


def test_every_field_that_is_wrong_has_its_line() -> None:
    fields = [FieldError(pointer="/a", message="missing"), FieldError(pointer="/b", message="too long")]
    assert describe(Invalid("two things are wrong", fields=fields)) == [
        "two things are wrong",
        "  /a: missing",
        "  /b: too long",
    ]


def test_a_single_thing_is_said_once() -> None:
    assert describe(Invalid("a: missing", fields=[FieldError(pointer="/a", message="missing")])) == ["a: missing"]


def test_an_embedded_database_that_is_down_is_cured_by_starting_the_platform() -> None:
    with pytest.raises(CommandFailed, match="attune up"), database_errors("postgresql://a:b@/x", embedded=True):
        raise ConnectionRefusedError(111, "refused")
