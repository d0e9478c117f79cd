"""What is promised about the registry: every failpoint in the source is declared, and sits where it says."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from attune.runtime.failpoints import DECLARED, Declared

SOURCE = Path(__file__).parents[2] / "src/attune"
OWN = SOURCE / "runtime/failpoints"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One failpoint in the source."""

    name: str
    place: str
    answered: bool


def calls() -> Iterator[Call]:
    for path in SOURCE.rglob("*.py"):
        if path.is_relative_to(OWN):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in ("failpoint", "afailpoint"):
                place = str(path.relative_to(SOURCE))
                assert isinstance(node.args[0], ast.Constant), f"{place}:{node.lineno} has no literal name"
                answered = any(keyword.arg == "unknown" for keyword in node.keywords)
                yield Call(name=str(node.args[0].value), place=place, answered=answered)


def test_every_declared_failpoint_is_passed_once_in_each_of_its_places_and_nowhere_else() -> None:
    passed = Counter((call.name, call.place) for call in calls())
    declared = Counter((name, place) for name, point in DECLARED.items() for place in point.places)

    assert passed == declared


def test_an_answer_can_be_lost_exactly_where_the_registry_says() -> None:
    answered = {call.name for call in calls() if call.answered}
    unanswered = {call.name for call in calls() if not call.answered}

    assert answered == {name for name, point in DECLARED.items() if point.answered}
    assert not answered & unanswered


@pytest.mark.parametrize("point", DECLARED.values(), ids=lambda point: point.name)
def test_a_declaration_says_what_dying_there_means(point: Declared) -> None:
    assert DECLARED[point.name] is point
    assert re.fullmatch(r"[a-z]+(\.[a-z_]+)+", point.name)
    assert point.services
    assert point.services <= {"api", "executor", "worker", "sensor", "notifier", "supervisor"}
    assert len(point.meaning.split()) >= 4
