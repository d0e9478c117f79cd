"""The pack that ships with Attune."""

import importlib.resources
from pathlib import Path

from attune.domain.errors import Invalid


def find_core_pack() -> Path:
    """Its folder: in an installed package, or beside the sources."""
    installed = Path(str(importlib.resources.files("attune"))) / "_packs" / "core"
    beside = Path(__file__).parents[3] / "packs" / "core"
    for folder in (installed, beside):
        if (folder / "pack.yaml").is_file():
            return folder
    msg = f"the core pack is neither in {installed} nor in {beside}; install Attune again"
    raise Invalid(msg)
