"""Who may do what."""

from __future__ import annotations

import pytest

from attune.domain.errors import Forbidden
from attune.domain.permission import Caller, Permission, parse_permission, read_grants

CREATE = parse_permission("executions:create")
READ = parse_permission("executions:read")
EVERYTHING = read_grants([{"resource": "*", "actions": ["*"]}])
LOOKING = read_grants([{"resource": "*", "actions": ["read"]}])


def caller(**changes: object) -> Caller:
    return Caller(**{"identity": 1, "login": "ada", "token_id": 1, "grants": EVERYTHING, **changes})  # type: ignore[arg-type]  # fields by name


def test_a_grant_on_everything_allows_everything() -> None:
    assert caller().may(CREATE)


def test_looking_is_not_creating() -> None:
    viewer = caller(grants=LOOKING)
    assert viewer.may(READ)
    assert not viewer.may(CREATE)


def test_without_grants_nothing_is_allowed() -> None:
    assert not caller(grants=()).may(READ)


def test_a_token_narrows_and_never_widens() -> None:
    assert not caller(narrowed_to="viewer", narrowing=LOOKING).may(CREATE)
    assert not caller(grants=LOOKING, narrowed_to="admin", narrowing=EVERYTHING).may(CREATE)


def test_a_token_narrowed_to_nothing_allows_nothing() -> None:
    assert not caller(narrowed_to="empty", narrowing=()).may(READ)


def test_a_constraint_that_cannot_be_checked_gives_nothing() -> None:
    constrained = read_grants([{"resource": "*", "actions": ["*"], "constraints": {"pack": "demo"}}])
    assert not caller(grants=constrained).may(READ)


def test_a_grant_that_is_not_understood_gives_nothing() -> None:
    assert not caller(grants=read_grants([{"resource": "*", "actions": "*"}, {}])).may(READ)


def test_a_missing_permission_is_named() -> None:
    with pytest.raises(Forbidden, match="ada needs the permission executions:create"):
        caller(grants=LOOKING).must_have(CREATE)


def test_only_who_manages_a_resource_sees_the_rows_of_others() -> None:
    assert caller().owner_filter("tokens") is None
    assert caller(grants=LOOKING).owner_filter("tokens") == 1


@pytest.mark.parametrize("text", ["executions", "executions:", "Executions:read", "a:b:c", "*:*"])
def test_what_is_not_a_permission_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a permission"):
        parse_permission(text)


def test_a_permission_is_written_as_it_is_read() -> None:
    assert str(Permission(resource="packs", action="install")) == "packs:install"
