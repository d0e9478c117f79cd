"""Who may do what: grants on resources, and what a token leaves of them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from attune.domain.errors import Forbidden
from attune.domain.json_values import Json

ANY = "*"
_PATTERN = re.compile(r"([a-z_]+):([a-z_]+)")


class Scope(StrEnum):
    """Which rows of a resource an interface shows or changes."""

    INSTALLATION = "installation"  # every row
    OWN = "own"  # the asker's rows, unless the asker may manage everybody's


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """The right to do one kind of thing with one kind of resource, written `resource:action`."""

    resource: str
    action: str

    def __str__(self) -> str:
        return f"{self.resource}:{self.action}"


def parse_permission(text: str) -> Permission:
    """Read `resource:action`."""
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(f"not a permission, which is resource:action in small letters: {text!r}")
    return Permission(resource=match[1], action=match[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Some actions on one resource; `*` stands for all of them."""

    resource: str
    actions: frozenset[str]
    constrained: bool = False

    def covers(self, permission: Permission) -> bool:
        """Whether the grant gives this right. A constraint this version cannot check gives nothing."""
        return (
            not self.constrained
            and self.resource in (ANY, permission.resource)
            and not self.actions.isdisjoint((ANY, permission.action))
        )


def read_grants(stored: Iterable[Mapping[str, Json]]) -> tuple[Grant, ...]:
    """Grants as a permission set stores them; what is not understood gives nothing."""
    return tuple(_read_grant(document) for document in stored)


def _read_grant(document: Mapping[str, Json]) -> Grant:
    actions = document.get("actions")
    return Grant(
        resource=str(document.get("resource", "")),
        actions=frozenset(str(action) for action in actions) if isinstance(actions, list) else frozenset(),
        constrained=bool(document.get("constraints")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: an identity, what it may do, and what its token leaves of that."""

    identity: int
    login: str
    token_id: int
    grants: tuple[Grant, ...]
    # Not None: the token carries a permission set, and both must allow.
    narrowed_to: str | None = None
    narrowing: tuple[Grant, ...] = ()
    # An attempt asks with its own token: this is its execution, and all it sees.
    execution: int | None = None

    def may(self, permission: Permission) -> bool:
        """Whether the identity has the right and the token lets it be used."""
        held = any(grant.covers(permission) for grant in self.grants)
        return held and (self.narrowed_to is None or any(grant.covers(permission) for grant in self.narrowing))

    def must_have(self, permission: Permission) -> None:
        """Refuse unless the caller has the right."""
        if not self.may(permission):
            raise Forbidden(f"{self.login} needs the permission {permission}")

    def owner_filter(self, resource: str) -> int | None:
        """Whose rows of a resource the caller sees; None is everybody's, for those who manage it."""
        return None if self.may(Permission(resource=resource, action="manage")) else self.identity
