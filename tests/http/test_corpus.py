"""Addresses that lead inwards, in every disguise that is known: all refused, and nobody is connected to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence

import pytest

from attune.domain.http.allowed import parse_allow_list
from attune.domain.retry import Ending, Outcome
from attune.worker.http.network import Resolve
from attune.worker.runners.http import HttpRunner
from tests.http.conftest import Names, Server
from tests.worker.attempts import Printed, make_attempt

LOOPBACK = [
    "http://127.0.0.1:{port}/",
    "http://localhost:{port}/",
    "http://LOCALHOST:{port}/",
    "http://127.1:{port}/",
    "http://127.0.1:{port}/",
    "http://0x7f000001:{port}/",
    "http://0x7f.0.0.1:{port}/",
    "http://0x7f.1:{port}/",
    "http://2130706433:{port}/",
    "http://017700000001:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://0177.0.0.01:{port}/",
    "http://127.0.0.1.:{port}/",
    "http://127.255.255.254:{port}/",
    "http://0.0.0.0:{port}/",
    "http://0:{port}/",
    "http://0x0:{port}/",
    "http://[::1]:{port}/",
    "http://[0:0:0:0:0:0:0:1]:{port}/",
    "http://[0000::1]:{port}/",
    "http://[::]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]:{port}/",
    "http://[::127.0.0.1]:{port}/",
    "http://[::ffff:0:127.0.0.1]:{port}/",
    "http://127。0。0。1:{port}/",
    "http://127\uff0e0\uff0e0\uff0e1:{port}/",
    "http://①②⑦.⓪.⓪.①:{port}/",
    "http://\uff4c\uff4f\uff43\uff41\uff4chost:{port}/",
    "http://loc\u00adalhost:{port}/",
    "HTTP://127.0.0.1:{port}/",
    "http:\\\\127.0.0.1:{port}/",
    "http:127.0.0.1:{port}",
    "http:/127.0.0.1:{port}/",
    "//127.0.0.1:{port}/",
    " http://127.0.0.1:{port}/",
]
USERINFO = [
    "http://example.com@127.0.0.1:{port}/",
    "http://example.com:80@127.0.0.1:{port}/",
    "http://user:password@example.com/",
    "http://example.com\\@127.0.0.1:{port}/",
    "http://127.0.0.1:{port}\\@example.com/",
    "http://127.0.0.1:{port}#@example.com/",
    "http://127.0.0.1:{port}?@example.com/",
    "http://127.0.0.1:{port}%2f@example.com/",
    "http://example.com%00@127.0.0.1:{port}/",
    "http://127.0.0.1%00.example.com:{port}/",
    "http://127.0.0.1\t:{port}/",
    "http://127.0.0.1\n:{port}/",
    "http://exa mple.com:{port}/",
    "http:///x",
    "http://:{port}/",
    "http://[::1:{port}/",
    "http://example.com:0/",
    "http://example.com:99999/",
]
INWARD = [
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://172.31.255.254/",
    "http://192.168.0.1/",
    "http://192.168.1/",
    "http://0xc0a80001/",
    "http://3232235521/",
    "http://100.64.0.1/",
    "http://169.254.1.1/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://192.0.2.1/",
    "http://[fc00::1]/",
    "http://[fd12:3456::1]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25lo]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[2001:db8::1]/",
    "http://[::ffff:10.0.0.1]/",
    "http://[::ffff:c0a8:1]/",
]
METADATA = [
    "http://169.254.169.254/latest/meta-data/",
    "http://0xa9fea9fe/",
    "http://2852039166/",
    "http://0251.0376.0251.0376/",
    "http://169.254.43518/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://[fd00:ec2::254]/",
    "http://[fd20:ce::254]/",
    "http://169.254.170.2/",
    "http://169.254.170.23/",
    "http://100.100.100.200/",
    "http://192.0.0.192/",
    "http://168.63.129.16/",
    "http://metadata.google.internal/",
    "http://METADATA.google.internal./",
    "http://metadata/",
    "http://metadata.goog/",
    "http://instance-data/",
    "http://instance-data.ec2.internal/",
]
TUNNELS = [
    "http://[64:ff9b::7f00:1]:{port}/",
    "http://[64:ff9b::10.0.0.1]:{port}/",
    "http://[64:ff9b:1::7f00:1]:{port}/",
    "http://[64:ff9b:1::808:808]:{port}/",
    "http://[2002:7f00:1::]:{port}/",
    "http://[2002:c0a8:101::1]:{port}/",
    "http://[2001:0:7f00:1::f7f7:f7f7]:{port}/",
    "http://[2001:0:808:808::80ff:fffe]:{port}/",
    "http://[2606:4700::5efe:127.0.0.1]:{port}/",
    "http://[2606:4700::200:5efe:7f00:1]:{port}/",
]
SCHEMES = [
    "file:///etc/passwd",
    "gopher://127.0.0.1:{port}/",
    "ftp://127.0.0.1/",
    "dict://127.0.0.1:{port}/",
    "unix:///var/run/docker.sock",
    "jar:http://127.0.0.1!/",
    "ws://127.0.0.1:{port}/",
    "data:text/plain,x",
    "javascript:alert(1)",
    "netdoc:///etc/passwd",
    "127.0.0.1:{port}",
    "x",
]
CORPUS = {
    "loopback": LOOPBACK,
    "userinfo": USERINFO,
    "inward": INWARD,
    "metadata": METADATA,
    "tunnels": TUNNELS,
    "schemes": SCHEMES,
}
# Trusts no authority: quick to make, and nothing here gets as far as a certificate.
NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
REFUSALS = {"http_refused", "http_bad_request"}


async def ask(url: str, *, resolve: Resolve | None = None, allow: str = "", **request: object) -> Ending:
    runner = HttpRunner(allow=parse_allow_list(allow), version="test", resolve=resolve, trust=NOBODY)
    attempt = make_attempt(None, runner="http", http={"url": url, **request})
    async with asyncio.timeout(30):
        return await runner.run(attempt, Printed())


def refused(ending: Ending) -> bool:
    return (
        ending.outcome is Outcome.FAILED
        and ending.failure is not None
        and ending.failure.code in REFUSALS
        and ending.exit_code is None
    )


@pytest.mark.parametrize(("group", "url"), [(group, url) for group, urls in CORPUS.items() for url in urls])
async def test_nothing_leads_inwards(server: Server, group: str, url: str) -> None:
    server.answer("/", b"inside")
    ending = await ask(url.format(port=server.port))
    assert refused(ending), ending
    assert server.asked == []


# One without a host means a path on the same server.
ELSEWHERE = [url for url in [*LOOPBACK, *INWARD, *METADATA, *TUNNELS] if "//" in url]


@pytest.mark.parametrize("url", ELSEWHERE)
@pytest.mark.parametrize("status", ["302 Found", "307 Temporary Redirect"])
async def test_no_redirect_leads_inwards(server: Server, url: str, status: str) -> None:
    """The first server stands for one on the internet: the list opens it, and only it."""
    server.answer("/out", status=status, Location=url.format(port=1).strip().encode().decode("latin-1"))
    ending = await ask(server.url("/out"), allow=f"127.0.0.1:{server.port}")
    assert ending.outcome is Outcome.FAILED
    assert ending.failure is not None
    assert ending.failure.code in {"http_refused", "http_bad_answer"}
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "answers",
    [
        [["127.0.0.1"]],
        [["8.8.8.8", "127.0.0.1"]],
        [["127.0.0.1", "8.8.8.8"]],
        [["2606:4700::1", "::ffff:127.0.0.1"]],
        [["8.8.8.8", "169.254.169.254"]],
    ],
)
async def test_a_name_with_one_bad_answer_is_refused(server: Server, answers: Sequence[Sequence[str]]) -> None:
    server.answer("/", b"inside")
    names = Names(evil_example=answers)
    assert refused(await ask(f"http://evil.example:{server.port}/", resolve=names))
    assert server.asked == []


async def test_a_name_is_asked_once_and_the_answer_is_what_is_connected_to(server: Server) -> None:
    """Rebinding: the second answer would be another server, and nobody asks for it."""
    server.answer("/", b"first")
    names = Names(rebind_example=[["127.0.0.1"], ["127.0.0.2"]])
    ending = await ask(f"http://rebind.example:{server.port}/", resolve=names, allow="127.0.0.1")
    assert ending.outcome is Outcome.SUCCEEDED
    assert names.asked == ["rebind.example"]


async def test_a_name_that_turns_inwards_between_two_hops_is_refused(server: Server) -> None:
    server.answer("/", status="302 Found", Location="/again")
    server.answer("/again", b"inside")
    names = Names(rebind_example=[["127.0.0.1"], ["127.0.0.2"]])
    ending = await ask(f"http://rebind.example:{server.port}/", resolve=names, allow=f"127.0.0.1:{server.port}")
    assert refused(ending)
    assert len(server.asked) == 1


async def test_proxies_of_the_environment_are_not_used(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.answer("/", b"through a proxy")
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, server.url())
    assert refused(await ask("http://10.0.0.1/"))
    assert server.asked == []


@pytest.mark.parametrize(
    "allow", ["127.0.0.1", "127.0.0.0/8", "127.0.0.1:{port}", "[127.0.0.0/8]:{port}", "localhost:{port}"]
)
async def test_the_operators_list_opens_a_way(server: Server, allow: str) -> None:
    server.answer("/", b"inside")
    host = "localhost" if "localhost" in allow else "127.0.0.1"
    names = Names(localhost=[["127.0.0.1"]]) if host == "localhost" else None
    ending = await ask(server.url("/", host=host), allow=allow.format(port=server.port), resolve=names)
    assert ending.outcome is Outcome.SUCCEEDED
    assert len(server.asked) == 1


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert sum(len(urls) for urls in CORPUS.values()) >= 120
