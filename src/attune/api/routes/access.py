"""Logging in, tokens, and the log of who changed what."""

from typing import Final

from attune.api.bodies import NoBody
from attune.api.endpoint import PUBLIC, AnyEndpoint, Call, Endpoint, Method, NoQuery, Reply
from attune.api.pages import ID_MAX, NewestFirstQuery, Page, PageQuery, make_page, read_cursor
from attune.api.schemas.access import LoginAnswer, LoginRequest, NewTokenAnswer, TokenBody
from attune.domain.errors import Forbidden
from attune.domain.permission import Caller, Scope, parse_permission
from attune.operations.access.create_token import NewToken, TokenRequest, create_token
from attune.operations.access.log_in import Credentials, log_in
from attune.operations.access.revoke_token import revoke_token
from attune.storage.access import audit_log, tokens
from attune.storage.access.audit_log import AuditRow
from attune.storage.access.tokens import TokenRow


async def log_in_with_password(call: Call[NoQuery, LoginRequest]) -> Reply:
    services, login = call.services, call.body.login
    services.throttle.begin(login)
    credentials = Credentials(login=login, password=call.body.password)
    token = await log_in(services.parts.database, services.passwords, credentials, request_id=call.request_id)
    services.throttle.succeeded(login)
    return Reply(value=LoginAnswer(token=token.secret, expires_at=token.row.expires_at))


async def add_token(call: Call[NoQuery, TokenBody]) -> Reply:
    wanted = TokenRequest(
        identity=call.caller.identity,
        name=call.body.name,
        permission_set=_narrow(call.caller, call.body.permission_set),
        lifetime_seconds=call.body.expires_in_seconds,
    )
    async with call.services.parts.database.transaction() as tx:
        token = await create_token(tx, wanted, by=call.actor)
    return Reply(value=_new_token(token), status=201)


def _narrow(caller: Caller, wanted: str | None) -> str | None:
    """A token that was narrowed can only beget tokens that are narrowed the same way."""
    if caller.narrowed_to is None or wanted in (None, caller.narrowed_to):
        return wanted or caller.narrowed_to
    raise Forbidden(f"a token narrowed to {caller.narrowed_to} can only create tokens narrowed to {caller.narrowed_to}")


def _new_token(token: NewToken) -> NewTokenAnswer:
    row = token.row
    return NewTokenAnswer(
        id=row.id,
        name=row.name,
        identity=row.identity,
        permission_set=row.permission_set,
        created=row.created,
        expires_at=row.expires_at,
        secret=token.secret,
    )


async def list_tokens(call: Call[PageQuery, NoBody]) -> Reply:
    (after,) = read_cursor(call.query.cursor, (0,))
    owner = call.caller.owner_filter("tokens")
    async with call.services.parts.database.reading() as tx:
        rows = await tokens.list_page(tx, owner=owner, after=after, limit=call.query.limit + 1)
    return Reply(value=make_page(rows, limit=call.query.limit, place_of=lambda row: [row.id]))


async def delete_token(call: Call[NoQuery, NoBody]) -> Reply:
    token_id, owner = call.path_id("token_id"), call.caller.owner_filter("tokens")
    async with call.services.parts.database.transaction() as tx:
        await revoke_token(tx, token_id, owner=owner, by=call.actor)
    return Reply(status=204, content=b"")


async def list_audit(call: Call[NewestFirstQuery, NoBody]) -> Reply:
    query = call.query
    async with call.services.parts.database.reading() as tx:
        if query.sort == "-id":
            (before,) = read_cursor(query.cursor, (ID_MAX,))
            rows = await audit_log.list_newest(tx, before=before, limit=query.limit + 1)
        else:
            (after,) = read_cursor(query.cursor, (0,))
            rows = await audit_log.list_oldest(tx, after=after, limit=query.limit + 1)
    return Reply(value=make_page(rows, limit=query.limit, place_of=lambda row: [row.id]))


ENDPOINTS: Final[tuple[AnyEndpoint, ...]] = (
    Endpoint(
        method=Method.POST,
        path="/auth/login",
        name="log_in",
        summary="Exchange a password for a token that lasts twelve hours.",
        permission=PUBLIC,
        scope=Scope.OWN,
        body=LoginRequest,
        answer=LoginAnswer,
        also=(429,),
        respond=log_in_with_password,
    ),
    Endpoint(
        method=Method.POST,
        path="/api/v1/tokens",
        name="create_token",
        summary="Create a token of one's own; its secret is shown this once.",
        permission=parse_permission("tokens:create"),
        scope=Scope.OWN,
        body=TokenBody,
        answer=NewTokenAnswer,
        status=201,
        also=(422,),
        respond=add_token,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/tokens",
        name="list_tokens",
        summary="One's own tokens; with tokens:manage everybody's.",
        permission=parse_permission("tokens:read"),
        scope=Scope.OWN,
        query=PageQuery,
        answer=Page[TokenRow],
        respond=list_tokens,
    ),
    Endpoint(
        method=Method.DELETE,
        path="/api/v1/tokens/{token_id}",
        name="revoke_token",
        summary="End a token at once.",
        permission=parse_permission("tokens:revoke"),
        scope=Scope.OWN,
        answer=None,
        status=204,
        also=(404,),
        respond=delete_token,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/audit",
        name="list_audit",
        summary="Who changed what, the newest first.",
        permission=parse_permission("audit:read"),
        scope=Scope.INSTALLATION,
        query=NewestFirstQuery,
        answer=Page[AuditRow],
        respond=list_audit,
    ),
)
