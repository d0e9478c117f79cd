"""One route as data: who may use it, what it takes, what it answers, and the function that does it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Final, Generic, TypeVar

import msgspec

from attune.api.bodies import NoBody
from attune.api.errors import AnyRequest, request_id_of
from attune.api.pages import ID_MAX
from attune.api.services import Services
from attune.domain.errors import NotFound
from attune.domain.permission import Caller, Permission, Scope
from attune.operations.access.write_audit import Actor

Q = TypeVar("Q", bound=msgspec.Struct)
B = TypeVar("B")


class Method(StrEnum):
    """What may be done with a path."""

    GET = "GET"
    POST = "POST"
    PATCH = "PATCH"
    DELETE = "DELETE"


MUTATING: Final = frozenset({Method.POST, Method.PATCH, Method.DELETE})


class Public(Enum):
    """Declares a route that needs no token; there is no other way to have one."""

    PUBLIC = "public"


PUBLIC: Final = Public.PUBLIC


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """For routes without query parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a route answers: a value, written as JSON, or bytes as they are."""

    value: object = None
    status: int | None = None
    content: bytes | None = None
    # Instead of a value: pieces that are sent as they come.
    stream: AsyncIterator[bytes] | None = None
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[Q, B]):
    """One request that was let in."""

    request: AnyRequest
    services: Services
    known_caller: Caller | None
    query: Q
    body: B
    raw_body: bytes

    @property
    def caller(self) -> Caller:
        """Who asks; only public routes have nobody."""
        if self.known_caller is None:
            raise RuntimeError("a public route asked for its caller")
        return self.known_caller

    @property
    def actor(self) -> Actor:
        """Who asks, as the audit log knows them."""
        return Actor(name=self.caller.login, identity=self.caller.identity or None, request_id=self.request_id)

    @property
    def request_id(self) -> str:
        return request_id_of(self.request)

    def path_text(self, name: str) -> str:
        """A part of the path, as it was sent; what cannot be a name is not found."""
        text = str(self.request.path_params[name])
        if "\0" in text or not text.isprintable():
            raise NotFound("there is nothing of this name")
        return text

    def path_id(self, name: str) -> int:
        """A part of the path that is an id; what cannot be one is not found."""
        text = self.path_text(name)
        if not (text.isascii() and text.isdecimal()) or len(text) > len(str(ID_MAX)) or int(text) > ID_MAX:
            raise NotFound(f"{name.replace('_', ' ')} {text[:30]!r} does not exist")
        return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint(Generic[Q, B]):
    """A route; permission and scope have no default, so that nobody can forget them."""

    method: Method
    path: str
    name: str
    summary: str
    permission: Permission | Public
    scope: Scope
    answer: Any
    respond: Callable[[Call[Q, B]], Awaitable[Reply]]
    query: type[Q] = NoQuery  # type: ignore[assignment]  # the variable is bound by what a route passes
    body: type[B] = NoBody  # type: ignore[assignment]  # as above
    status: int = 200
    media_type: str = "application/json"
    # Whether the token of an attempt opens it, for what that attempt sees.
    for_attempts: bool = False
    # Statuses beside the usual ones that the description should name.
    also: tuple[int, ...] = ()

    @property
    def mutates(self) -> bool:
        return self.method in MUTATING


AnyEndpoint = Endpoint[Any, Any]
