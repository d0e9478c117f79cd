"""Shows the parameters of an action from its schema, the way `--help` shows options."""

from collections.abc import Mapping

import msgspec

from attune.cli.render import plain
from attune.client import Action


def describe_action(action: Action) -> str:
    """The action's ref, what it does, and one line per parameter."""
    head = [f"{action.ref}  ({action.runner})"]
    if action.description:
        head += ["", f"  {plain(action.description)}"]
    if action.quarantined_at is not None:
        since = f"{action.quarantined_at:%Y-%m-%d %H:%M:%S}"
        head += ["", f"Quarantined since {since}: {action.workers_lost} workers in a row were lost while they ran it."]
        head += [f"Nothing of it is placed until `attune action release {action.ref}`."]
    return "\n".join([*head, "", *_parameter_lines(action.parameters or {})])


def _parameter_lines(schema: Mapping[str, object]) -> list[str]:
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        return ["Parameters: none are declared."]
    required = schema.get("required")
    needed = set(required) if isinstance(required, list) else set()
    rows = [(name, _describe(part, required=name in needed)) for name, part in properties.items()]
    width = max(len(name) for name, _ in rows)
    return ["Parameters:", *(f"  {plain(name):<{width}}  {text}" for name, text in rows)]


def _describe(part: object, *, required: bool) -> str:
    if not isinstance(part, dict):
        return ""
    kind = part.get("type", "any")
    words = ["|".join(kind) if isinstance(kind, list) else str(kind)]
    if required:
        words.append("required")
    if part.get("secret") is True:
        words.append("secret")
    if "default" in part:
        words.append(f"default {plain(msgspec.json.encode(part['default']).decode())}")
    if isinstance(part.get("enum"), list):
        words.append(f"one of {', '.join(plain(each) for each in part['enum'])}")
    described = f"  {plain(part['description'])}" if part.get("description") else ""
    return ", ".join(words) + described
