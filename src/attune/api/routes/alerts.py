"""Alerts: what is worth a person's attention now, and what was."""

from typing import Final

from attune.api.bodies import NoBody
from attune.api.endpoint import AnyEndpoint, Call, Endpoint, Method, NoQuery, Reply
from attune.api.pages import ID_MAX, Page, make_page, read_cursor
from attune.api.schemas.alerts import AlertAnswer, AlertQuery
from attune.domain.errors import NotFound
from attune.domain.permission import Scope, parse_permission
from attune.storage.views import alerts

READ: Final = parse_permission("alerts:read")


async def list_alerts(call: Call[AlertQuery, NoBody]) -> Reply:
    query = call.query
    (before,) = read_cursor(query.cursor, (ID_MAX,))
    async with call.services.parts.database.reading() as tx:
        rows = await alerts.list_page(tx, state=query.state, name=query.name, before=before, limit=query.limit + 1)
    found = [AlertAnswer.of(row) for row in rows]
    return Reply(value=make_page(found, limit=query.limit, place_of=lambda alert: [alert.id]))


async def get_alert(call: Call[NoQuery, NoBody]) -> Reply:
    alert_id = call.path_id("alert_id")
    async with call.services.parts.database.reading() as tx:
        row = await alerts.find(tx, alert_id)
    if row is None:
        raise NotFound(f"alert {alert_id} does not exist; they are kept for a limited time")
    return Reply(value=AlertAnswer.of(row))


ENDPOINTS: Final[tuple[AnyEndpoint, ...]] = (
    Endpoint(
        method=Method.GET,
        path="/api/v1/alerts",
        name="list_alerts",
        summary="Alerts that stand open or are over, the newest first.",
        permission=READ,
        scope=Scope.INSTALLATION,
        query=AlertQuery,
        answer=Page[AlertAnswer],
        respond=list_alerts,
    ),
    Endpoint(
        method=Method.GET,
        path="/api/v1/alerts/{alert_id}",
        name="get_alert",
        summary="One alert, with its facts and the page that helps.",
        permission=READ,
        scope=Scope.INSTALLATION,
        answer=AlertAnswer,
        also=(404,),
        respond=get_alert,
    ),
)
