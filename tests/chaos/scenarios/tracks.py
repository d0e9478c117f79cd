"""The lines a storm goes over: of single actions, of groups of one action, and one shared by a whole pack."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.witness.ledger import ledger_command

LIMIT_MAX = 6
# One line in so many is that of a group.
GROUPED = 5
GROUP_LIMIT = 2


@dataclass(slots=True, kw_only=True)
class Track:
    """One line, seen by the one client that asks for work in it."""

    refs: Sequence[str]
    policy_ref: str
    limits: set[int]
    parameters: Mapping[str, str] = field(default_factory=dict)
    # Not where other lines share the policy.
    changeable: bool = True
    # In the order of the answers.
    accepted: list[int] = field(default_factory=list)
    cancel_asked: set[int] = field(default_factory=set)
    cleared: int = 0
    line_id: int | None = None


def make_tracks(count: int, dice: random.Random) -> list[Track]:
    """As many lines as asked for, with limits as the dice fall."""
    shared = Track(refs=["shared.one", "shared.two"], policy_ref="shared.limit", limits={dice.randint(1, LIMIT_MAX)})
    grouped = [
        Track(
            refs=["storm.grouped"],
            policy_ref="storm.grouped_limit",
            limits={GROUP_LIMIT},
            parameters={"host": f"host-{number}"},
            changeable=False,
        )
        for number in range(count // GROUPED)
    ]
    single = [
        Track(refs=[f"storm.work_{number}"], policy_ref=f"storm.limit_{number}", limits={dice.randint(1, LIMIT_MAX)})
        for number in range(count - len(grouped) - 1)
    ]
    return [shared, *grouped, *single]


def write_packs(folder: Path, tracks: Sequence[Track], ledger: Path) -> list[Path]:
    """The packs of these lines; every action tells the ledger when it starts and ends."""
    packs = [folder / "storm", folder / "shared"]
    for pack in packs:
        (pack / "actions").mkdir(parents=True)
        (pack / "policies").mkdir()
        (pack / "pack.yaml").write_text(f"ref: {pack.name}\nversion: 1.0.0\n")
    for track in {track.policy_ref: track for track in tracks}.values():
        for ref in track.refs:
            _write_action(folder, ref, ledger)
        owner, _, name = track.policy_ref.partition(".")
        scope = f"{{action: {track.refs[0]}}}" if len(track.refs) == 1 else f"{{pack: {owner}}}"
        group = "" if not track.parameters else f", parameters: [{', '.join(track.parameters)}]"
        (folder / owner / "policies" / f"{name}.yaml").write_text(
            f"ref: {track.policy_ref}\nscope: {scope}\nconcurrency: {{limit: {min(track.limits)}{group}}}\n"
        )
    return packs


def _write_action(folder: Path, ref: str, ledger: Path) -> None:
    pack, _, name = ref.partition(".")
    script = "".join(f"  {line}\n" for line in ledger_command(ledger, body=":").splitlines())
    (folder / pack / "actions" / f"{name}.yaml").write_text(
        f"ref: {ref}\nrunner: shell\ncommand: |\n{script}timeout_seconds: 60\n"
    )
