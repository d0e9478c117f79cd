"""What the page about packs shows is what the reader reads."""

import re
from pathlib import Path

from attune.domain.definition_shapes import ACTION_SHAPE, PACK_SHAPE, POLICY_SHAPE
from attune.domain.json_values import Json
from attune.packs.read import read_pack

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "packs.md").read_text()


def test_the_example_can_be_installed(tmp_path: Path) -> None:
    blocks = re.findall(r"```\w+\n# demo/(\S+)\n(.*?)```", PAGE, re.DOTALL)
    for name, text in blocks:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    reading = read_pack(tmp_path)
    assert len(blocks) == 4
    assert [action.ref for action in reading.definition.actions] == ["demo.slow"]
    assert [policy.ref for policy in reading.definition.policies] == ["demo.slow_limit"]
    assert reading.warnings == ()


def test_every_key_is_described() -> None:
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
    for title, shape in (("pack.yaml", PACK_SHAPE), ("Actions", ACTION_SHAPE), ("Policies", POLICY_SHAPE)):
        rows = re.findall(r"^\| (`.+?) \|", sections[title], re.MULTILINE)
        described = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
        assert described == keys_of(shape), title


def keys_of(shape: dict[str, Json]) -> set[str]:
    properties = shape["properties"]
    assert isinstance(properties, dict)
    return set(properties)
