"""Keeps the documentation true: what exists is documented, what is documented exists, and every command parses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest
from prometheus_client.metrics import MetricWrapperBase

from attune.cli.exits import Exit
from attune.cli.main import attune
from attune.domain.alerts.catalogue import ALERTS
from attune.domain.execution import Status, diagram
from attune.domain.messages import DEAD_TOPIC, MessageType
from attune.runtime.failpoints.reference import failpoint_reference
from attune.runtime.metrics import Metrics, build_metrics
from attune.runtime.settings import known_settings
from attune.storage.upkeep.invariants import INVARIANTS
from attune.transport import topology
from attune.worker.runners.protocol import StopReason
from tests.documents import (
    GENERATED,
    REFERENCE,
    ROOT,
    CommandLine,
    anchors,
    command_lines,
    links,
    name_of,
    pages,
    sections,
)

HAND_WRITTEN = [page for page in pages() if page not in GENERATED]
FORMER_SETTINGS = frozenset({"executor.worker_queue_ttl"})


def leaves(context: click.Context) -> Iterator[click.Context]:
    """Every command that does something."""
    command = context.command
    if not isinstance(command, click.Group):
        yield context
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from leaves(click.Context(below, info_name=name, parent=context))


def test_every_setting_is_documented() -> None:
    page = (REFERENCE / "settings.md").read_text()
    for key, setting in known_settings().items():
        assert f"`{key}`" in page
        assert f"`{setting.environment_name}`" in page


def test_every_setting_the_pages_name_exists() -> None:
    known = known_settings()
    groups = {key.rpartition(".")[0] for key in known} - {""}
    named = re.compile(rf"`((?:{'|'.join(groups)})\.[a-z_.]+)`")
    for page in pages():
        if page.name == "failpoints.md":  # Their names look alike.
            continue
        unknown = set(named.findall(page.read_text())) - set(known) - groups - FORMER_SETTINGS - set(MessageType)
        assert not {name for name in unknown if not name.endswith((".py", ".yaml"))}, name_of(page)


def test_every_variable_the_pages_name_is_a_setting() -> None:
    known = {setting.environment_name: setting for setting in known_settings().values()}
    files = {f"{name}_FILE" for name, setting in known.items() if setting.rules.secret}
    for page in pages():
        assert set(re.findall(r"ATTUNE__\w+", page.read_text())) <= known.keys() | files, name_of(page)


def test_every_command_and_option_is_documented() -> None:
    written = sections((REFERENCE / "cli.md").read_text())
    for context in leaves(click.Context(attune, info_name="attune")):
        section = written[f"`{context.command_path}`"]
        for parameter in context.command.params:
            if isinstance(parameter, click.Option):
                assert all(option in section for option in parameter.opts), f"{context.command_path} {parameter.name}"


def parse(line: CommandLine) -> None:
    """Resolve a command and all its words without running it; raises what click would tell the person."""
    command: click.Command = attune
    context: click.Context | None = None
    words = [fill_in(word) for word in line.words]
    while isinstance(command, click.Group) and words:
        context = command.make_context(command.name, words, parent=context)
        _, below, words = command.resolve_command(context, [*context._protected_args, *context.args])
        assert below is not None
        command = below
    if not isinstance(command, click.Group):
        command.make_context(command.name, words, parent=context)


def fill_in(word: str) -> str:
    """A placeholder or a variable of the shell, as something that a command may get."""
    return "1" if re.fullmatch(r"[A-Z]+|\$\w+", word) else word


def complaint(line: CommandLine) -> str | None:
    """What is wrong with a command line, if anything."""
    try:
        parse(line)
    except click.exceptions.Exit:
        return None  # --help and --version are answered while parsing.
    except click.MissingParameter as error:
        # The running text may name a command without its arguments.
        return f"{line}: {error.format_message()}" if line.typed else None
    except click.BadParameter as error:
        # A folder that only the reader has; everything else about the line was right.
        made_by_reader = error.param is not None and isinstance(error.param.type, click.Path)
        return None if made_by_reader else f"{line}: {error.format_message()}"
    except click.UsageError as error:
        return f"{line}: {error.format_message()}"
    return None


@pytest.mark.parametrize("page", HAND_WRITTEN, ids=name_of)
def test_every_command_on_a_page_can_be_typed(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTUNE_PASSWORD", "given, so that nobody is asked")
    monkeypatch.chdir(ROOT)
    wrong = [text for line in command_lines(page) if (text := complaint(line))]
    assert not wrong, "\n".join(wrong)


def test_commands_are_found_on_the_pages() -> None:
    found = {" ".join(line.words) for line in command_lines(ROOT / "README.md") if line.typed}
    assert "run core.echo message=hi --wait" in found
    assert "status" in found  # inside $( … | … )
    assert sum(1 for page in HAND_WRITTEN for _ in command_lines(page)) > 50


@pytest.mark.parametrize(
    "words", [("run", "core.echo", "--wiat"), ("executions", "list"), ("serve", "workers"), ("scale",)]
)
def test_a_command_that_does_not_exist_is_noticed(words: tuple[str, ...]) -> None:
    assert complaint(CommandLine(page="", words=words, typed=True))


def test_every_exit_code_is_documented() -> None:
    rows = re.findall(r"^\| (\d+) \|", (REFERENCE / "exit-codes.md").read_text(), re.MULTILINE)
    assert [int(row) for row in rows] == sorted(Exit)


def test_every_message_topic_exchange_and_queue_is_documented() -> None:
    page = (REFERENCE / "messages.md").read_text()
    types = re.findall(r"^\| `([a-z.]+)` \|", sections(page)["Types"], re.MULTILINE)
    assert sorted(types) == sorted(MessageType)
    queues = [
        *topology.EXECUTOR_QUEUES,
        topology.dead_letter_queue(ttl_ms=1),
        *topology.worker_queues(0, ttl_ms=1),
    ]
    documented = sections(page)["Exchanges and queues"]
    for queue in queues:
        (row,) = [
            row for row in documented.splitlines() if row.startswith(f"| `{queue.name.replace('.0.', '.{id}.')}`")
        ]
        assert f"| `{queue.exchange}` |" in row
        assert queue.owner in row
        assert all(f"`{key.replace('.0', '.{id}')}`" in row for key in queue.keys), row
    for exchange, kind in topology.EXCHANGE_TYPES.items():
        assert f"`{exchange}` ({kind})" in documented
    assert f"`{topology.notification_queue('{instance}')}`" in documented
    topics = {topic for queue in queues for topic in queue.topics} | {DEAD_TOPIC}
    assert all(f"`{topic.replace('.0', '.{id}')}`" in page for topic in topics)


def test_every_route_is_documented() -> None:
    reference = pytest.importorskip("attune.api.reference")
    assert (REFERENCE / "routes.md").read_text() == reference.render_routes()


def test_every_metric_is_documented_with_its_kind_and_labels() -> None:
    rows = re.findall(
        r"^\| `(attune_\w+)` \| (\w+) \|(.*?)\| (.*) \|$", (REFERENCE / "metrics.md").read_text(), re.MULTILINE
    )
    documented = {name: (kind, set(re.findall(r"`(\w+)`", labels)), meaning) for name, kind, labels, meaning in rows}
    metrics = build_metrics(version="0", service="api")
    suffixes = {"counter": "_total", "info": "_info"}
    families = [family for family in metrics.registry.collect() if family.name.startswith("attune_")]
    assert documented.keys() == {family.name + suffixes.get(family.type, "") for family in families}
    labels = {each._name: set(each._labelnames) for each in vars_of(metrics)}
    for family in families:
        kind, named, meaning = documented[family.name + suffixes.get(family.type, "")]
        assert kind == ("gauge" if family.type == "info" else family.type), family.name
        assert named == labels.get(family.name, {"version", "service", "python"}), family.name
        assert meaning.startswith(family.documentation), family.name


def vars_of(metrics: Metrics) -> list[MetricWrapperBase]:
    """The metrics themselves."""
    values = (getattr(metrics, field.name) for field in fields(metrics))
    return [value for value in values if isinstance(value, MetricWrapperBase)]


def test_every_invariant_has_its_section() -> None:
    page = sections((REFERENCE / "invariants.md").read_text())
    assert list(page) == [invariant.name for invariant in INVARIANTS]
    for invariant in INVARIANTS:
        section = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", page[invariant.name])
        assert f"**Claim.** {invariant.claim}" in section
        assert "**Why it holds.**" in section
        assert "**If not.**" in section


def test_every_alert_is_documented_and_its_runbook_exists() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| (.+?) \| (.+?) \| (.+?) \| \[.+?\]\((.+?)\) \|$",
        (REFERENCE / "alerts.md").read_text(),
        re.MULTILINE,
    )
    told = [
        (alert.name, alert.severity, alert.condition, alert.for_seconds, alert.clear_seconds, alert.runbook)
        for alert in ALERTS
    ]
    assert [
        (name, severity, condition, seconds_of(holds), seconds_of(gone), runbook.removeprefix("../"))
        for name, severity, condition, holds, gone, runbook in rows
    ] == told
    for alert in ALERTS:
        page, _, anchor = alert.runbook.partition("#")
        assert (ROOT / "docs" / page).is_file(), alert.name
        assert not anchor or anchor in anchors(ROOT / "docs" / page), alert.name


def seconds_of(cell: str) -> float:
    """A time as the table of alerts tells it."""
    return 0.0 if cell == "at once" else float(cell.removesuffix(" s"))


def test_the_state_diagram_is_current() -> None:
    page = (REFERENCE / "execution-states.md").read_text()
    assert f"```mermaid\n{diagram()}\n```" in page
    rows = "".join(re.findall(r"^\| (`.+?) \|", page, re.MULTILINE))
    assert all(f"`{status}`" in rows for status in Status)


def test_every_code_an_execution_can_end_with_is_documented() -> None:
    rows = re.findall(
        r"^\| (`.+?) \|", sections((REFERENCE / "execution-states.md").read_text())["Codes"], re.MULTILINE
    )
    documented = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    assert documented == codes_in_the_source()


def codes_in_the_source() -> set[str]:
    """Where an ending is made its code is a literal, or one of the reasons for which a worker stops an attempt."""
    found = {str(reason) for reason in StopReason}
    for path in [*(ROOT / "src/attune").glob("worker/**/*.py"), *(ROOT / "src/attune").glob("[do]*/**/*.py")]:
        text = path.read_text()
        found |= set(re.findall(r"\bFailure\(\s*code=\"(\w+)\"", text))
        found |= set(re.findall(r"\b(?:failed\(\s*\w+,|Unrunnable\(|Unopened\(|_tell\(\s*\w+,)\s*\"(\w+)\"", text))
    return found


def test_the_page_of_failpoints_is_that_of_the_registry() -> None:
    assert (REFERENCE / "failpoints.md").read_text() == failpoint_reference()


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)} links to {link}"
        assert target.is_relative_to(ROOT), f"{name_of(page)} links to {link}, outside of the repository"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{name_of(page)} links to {link}; there are {sorted(anchors(target))}"


def test_every_page_can_be_reached_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    reachable = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    lost = [name_of(page) for page in (ROOT / "docs").rglob("*.md") if page != index and page not in reachable]
    assert not lost


def test_the_architecture_fits_on_two_pages() -> None:
    # About fifty lines to a printed page of prose, tables and short blocks.
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 120
