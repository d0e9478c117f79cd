"""The core pack is sound, and its page lists what it holds."""

from __future__ import annotations

import re

import pytest

from attune.domain.definitions import ActionDefinition, Runner
from attune.packs.read import read_pack
from attune.packs.shipped import find_core_pack
from attune.worker.runners.native import FUNCTIONS

ACTIONS = read_pack(find_core_pack()).definition.actions


def test_every_action_is_on_the_page_with_all_its_parameters() -> None:
    page = (find_core_pack() / "README.md").read_text()
    rows = {
        ref: set(re.findall(r"`(\w+)`", cell))
        for ref, cell in re.findall(r"^\| `(core\.[\w.]+)` \| (.*?) \|", page, re.MULTILINE)
    }
    expected = {action.ref: set(properties(action)) for action in ACTIONS}
    assert rows == expected


def properties(action: ActionDefinition) -> dict[str, object]:
    found = action.parameters.get("properties", {})
    assert isinstance(found, dict)
    return dict(found)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.ref)
def test_every_action_tells_people_what_it_is(action: ActionDefinition) -> None:
    assert action.label
    assert action.description.endswith(".")
    for name, schema in properties(action).items():
        assert isinstance(schema, dict)
        assert schema.get("description"), name


def test_every_native_function_has_its_action() -> None:
    native = {action.entry_point for action in ACTIONS if action.runner is Runner.NATIVE}
    assert native == set(FUNCTIONS)
