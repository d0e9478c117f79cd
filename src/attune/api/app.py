"""The API as an ASGI application: every declared route, behind one way in."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import msgspec
from litestar import Litestar, Request, Response
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler
from litestar.response import Stream
from litestar.routes import HTTPRoute

from attune.api.bodies import NoBody, check_media_type, decode_body, read_body
from attune.api.endpoint import AnyEndpoint, Call, Endpoint, Public, Reply
from attune.api.errors import AnyRequest, BadRequest, answer_error, standard_headers
from attune.api.openapi import describe
from attune.api.parts import ApiParts
from attune.api.routes import (
    access,
    alerts,
    artifacts,
    dead_letters,
    definitions,
    endings,
    executions,
    lines,
    logs,
    platform,
    why,
    workers,
)
from attune.api.services import Services
from attune.api.sight import refuse_out_of_sight
from attune.domain.errors import FieldError
from attune.domain.json_values import find_unstorable
from attune.domain.permission import Caller, Permission
from attune.domain.refs import did_you_mean
from attune.runtime.failpoints import afailpoint

Q = TypeVar("Q", bound=msgspec.Struct)
ENDPOINT_KEY: Final = "endpoint"
# What is to be called when the service is about to stop, so that nobody is kept waiting.
STOPPING_KEY: Final = "stopping"
READING_ACTION: Final = "read"
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


class UndeclaredRoute(Exception):
    """A route does not say who may use it, so the application does not start."""


def all_endpoints(*, version: str) -> tuple[AnyEndpoint, ...]:
    """Every route there is."""
    description: list[bytes] = []

    def describe_once() -> bytes:
        if not description:
            description.append(msgspec.json.encode(describe(endpoints, version=version)))
        return description[0]

    endpoints: tuple[AnyEndpoint, ...] = (
        *executions.ENDPOINTS,
        *logs.ENDPOINTS,
        *artifacts.ENDPOINTS,
        *endings.ENDPOINTS,
        *why.ENDPOINTS,
        *lines.ENDPOINTS,
        *dead_letters.ENDPOINTS,
        *alerts.ENDPOINTS,
        *definitions.ENDPOINTS,
        *workers.ENDPOINTS,
        *access.ENDPOINTS,
        *platform.ENDPOINTS,
        platform.description_endpoint(describe_once),
    )
    return endpoints


def create_app(parts: ApiParts) -> Litestar:
    """Build the application; it refuses to exist if a route lacks its permission or scope."""
    services = Services.build(parts)
    endpoints = all_endpoints(version=parts.version)
    check_declarations(endpoints)

    @asynccontextmanager
    async def lifespan(_app: Litestar) -> AsyncIterator[None]:
        async with services.running():
            yield

    app = Litestar(
        [_route_handler(endpoint, services) for endpoint in endpoints],
        exception_handlers={Exception: answer_error},
        lifespan=[lifespan],
        openapi_config=None,
        logging_config=None,
        request_max_body_size=None,
        state=State({STOPPING_KEY: services.send_home}),
    )
    refuse_undeclared(app)
    return app


def check_declarations(endpoints: Iterable[AnyEndpoint]) -> None:
    """Refuse declarations that contradict themselves."""
    names: set[str] = set()
    for endpoint in endpoints:
        where = f"{endpoint.method} {endpoint.path}"
        if not isinstance(endpoint.permission, Permission | Public):
            raise UndeclaredRoute(f"{where} does not declare its permission")
        if not endpoint.scope:
            raise UndeclaredRoute(f"{where} does not declare its scope")
        if endpoint.mutates and isinstance(endpoint.permission, Permission) and _only_reads(endpoint.permission):
            raise UndeclaredRoute(f"{where} changes something with the permission {endpoint.permission}")
        if endpoint.name in names or not _NAME.fullmatch(endpoint.name):
            raise UndeclaredRoute(f"{where} has no name of its own: {endpoint.name!r}")
        names.add(endpoint.name)


def _only_reads(permission: Permission) -> bool:
    return permission.action == READING_ACTION


def refuse_undeclared(app: Litestar) -> None:
    """Refuse routes that came in some other way than by a declaration."""
    for route in app.routes:
        for handler in route.route_handlers if isinstance(route, HTTPRoute) else [route.route_handler]:
            declared = isinstance(handler.opt.get(ENDPOINT_KEY), Endpoint)
            answers_options = isinstance(handler, HTTPRouteHandler) and handler.http_methods == {"OPTIONS"}
            if not declared and not answers_options:
                raise UndeclaredRoute(f"{route.path} was added without declaring its permission and scope")


def _route_handler(endpoint: AnyEndpoint, services: Services) -> HTTPRouteHandler:
    async def handle(request: Request[None, None, State]) -> Response[Any]:
        reply = await _respond(endpoint, services, request)
        if endpoint.mutates:
            await afailpoint("api.answer.before_send", unknown=ConnectionResetError)
        if reply.stream is not None:
            return Stream(
                reply.stream,
                status_code=reply.status or endpoint.status,
                media_type=reply.media_type,
                headers={**standard_headers(request), **reply.headers},
            )
        content = reply.content if reply.content is not None else msgspec.json.encode(reply.value)
        return Response(
            content=content,
            status_code=reply.status or endpoint.status,
            media_type=reply.media_type,
            headers={**standard_headers(request), **reply.headers},
        )

    # Every path parameter is taken as text; what it must be is checked where it is used.
    path = re.sub(r"\{(\w+)\}", r"{\1:str}", endpoint.path)
    decorate: Callable[[Callable[..., Awaitable[Response[Any]]]], HTTPRouteHandler] = HTTPRouteHandler(
        path, http_method=endpoint.method.value, name=endpoint.name, status_code=200, opt={ENDPOINT_KEY: endpoint}
    )
    return decorate(handle)


async def _respond(endpoint: AnyEndpoint, services: Services, request: AnyRequest) -> Reply:
    """One way in for every request: who, may they, then what; strangers' bodies are not even read."""
    caller = await _admit(endpoint, services, request)
    query = _read_query(request, endpoint.query)
    raw = b"" if endpoint.body is NoBody and not endpoint.mutates else await _read(services, request)
    body: object = NoBody()
    if endpoint.body is not NoBody or raw:
        check_media_type(request)
        body = decode_body(raw, endpoint.body)
    call = Call(request=request, services=services, known_caller=caller, query=query, body=body, raw_body=raw)
    return await endpoint.respond(call)


async def _admit(endpoint: AnyEndpoint, services: Services, request: AnyRequest) -> Caller | None:
    if isinstance(endpoint.permission, Public):
        return None
    caller = await services.authenticator.identify(request)
    caller.must_have(endpoint.permission)
    await refuse_out_of_sight(services.parts.database, caller, request, for_attempts=endpoint.for_attempts)
    return caller


async def _read(services: Services, request: AnyRequest) -> bytes:
    return await read_body(request, bytes_max=services.parts.limits.body_max_bytes)


def _read_query(request: AnyRequest, shape: type[Q]) -> Q:
    """The query, strictly: an unknown or repeated parameter is a mistake somebody would like to hear of."""
    given = list(request.query_params.multi_items()) if request.scope["query_string"] else []
    if not given:
        return shape()
    known = [field.encode_name for field in msgspec.structs.fields(shape)]
    for name, _ in given:
        if name not in known:
            raise _bad_query(str(name), f"is not a parameter of this route{did_you_mean(str(name), known)}")
    values = {str(name): value for name, value in given}
    for unstorable in find_unstorable(values):
        raise _bad_query(unstorable.pointer.lstrip("/"), unstorable.message)
    if len(values) != len(given):
        raise _bad_query("", "a parameter is given twice")
    try:
        return msgspec.convert(values, shape, strict=False)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$.")
        raise _bad_query(path.rstrip("`"), message) from error


def _bad_query(name: str, message: str) -> BadRequest:
    field = FieldError(pointer=f"/{name}" if name else "", message=message)
    return BadRequest(f"the query is wrong: {name} {message}", code="bad_query", fields=[field])
