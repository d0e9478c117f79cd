"""What the API says about itself, and how it starts."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

from attune.api.app import all_endpoints
from attune.api.parts import CheckResult
from attune.api.reference import render_routes
from attune.api.serve import bind
from attune.runtime.supervise import CannotStart
from attune.storage.database import Database
from tests.api.running import Api, serving

ROOT = Path(__file__).resolve().parents[2]


async def test_an_api_without_problems_is_ready(api: Api) -> None:
    answer = await api.stranger.get("/readyz")
    assert (answer.status_code, answer.json()["ready"]) == (200, True)


async def test_what_is_not_ready_says_so_with_the_cure(database: Database, tmp_path: Path) -> None:
    async def broken() -> CheckResult:
        return CheckResult(ok=False, detail="two migrations are missing", cure="run attune db migrate")

    async def failing() -> CheckResult:
        raise RuntimeError("password=secret")

    async def advice() -> CheckResult:
        return CheckResult(ok=False, detail="no worker is active", required=False)

    async with serving(database, tmp_path, checks={"schema": broken, "transport": failing, "workers": advice}) as api:
        answer = await api.stranger.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["parts"]["schema"]["cure"] == "run attune db migrate"
    assert "secret" not in answer.text
    assert answer.json()["parts"]["workers"]["required"] is False


async def test_advice_alone_does_not_make_it_unready(database: Database, tmp_path: Path) -> None:
    async def advice() -> CheckResult:
        return CheckResult(ok=False, detail="no worker is active", required=False)

    async with serving(database, tmp_path, checks={"workers": advice}) as api:
        assert (await api.stranger.get("/readyz")).status_code == 200


async def test_metrics_are_in_the_format_of_prometheus(api: Api) -> None:
    answer = await api.admin.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "attune_build_info" in answer.text


async def test_the_description_covers_every_route(api: Api) -> None:
    description = (await api.admin.get("/openapi.json")).json()
    assert description["openapi"].startswith("3.1")
    for endpoint in all_endpoints(version="0"):
        operation = description["paths"][endpoint.path][endpoint.method.lower()]
        assert operation["operationId"] == endpoint.name
        assert operation["x-permission"]
    assert description["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"


async def test_every_reference_in_the_description_leads_somewhere(api: Api) -> None:
    answer = await api.admin.get("/openapi.json")
    known = answer.json()["components"]["schemas"]
    for name in re.findall(r'"\$ref":"#/components/schemas/([^"]+)"', answer.text):
        assert name in known
    assert re.findall(r'"\$ref":"(?!#/components/schemas/)', answer.text) == []


async def test_the_page_needs_nothing_from_elsewhere(api: Api) -> None:
    page = await api.stranger.get("/docs")
    assert page.status_code == 200
    assert "://" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    files = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(files) == 5
    for file in files:
        answer = await api.stranger.get(file)
        assert (file, answer.status_code) == (file, 200)
    assert (await api.stranger.get("/docs/page.js")).headers["content-type"].startswith("text/javascript")
    assert (await api.stranger.get("/docs/..%2fapp.py")).status_code == 404


def test_a_port_in_use_names_its_owner() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotStart, match=rf"port {port} on 127.0.0.1 is in use by .*{os.getpid()}"):
            bind("127.0.0.1", port)


def test_the_reference_of_routes_is_current() -> None:
    page = ROOT / "docs" / "reference" / "routes.md"
    assert page.read_text() == render_routes(), f"run: python -m attune.api > {page.relative_to(ROOT)}"
