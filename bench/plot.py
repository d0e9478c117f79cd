"""Bars as an SVG, readable on a light and on a dark page. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT = 860, 200, 150
BAR, GAP, HEAD = 18, 6, 40

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; font-size: 15px; }
.small { font-size: 11px; fill: #59636e; }
.ours { fill: #0969da; } .peer { fill: #8c959f; } .range { stroke: #1f2328; stroke-width: 1.5; }
.page { fill: #ffffff; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc; } .small { fill: #9198a1; }
  .ours { fill: #4493f8; } .peer { fill: #656c76; } .range { stroke: #f0f6fc; }
  .page { fill: #0d1117; }
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One system in one workload; nothing measured is said in words."""

    label: str
    value: float | None
    low: float = 0.0
    high: float = 0.0
    ours: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Bars that are compared with each other, on a scale of their own."""

    title: str
    bars: Sequence[Bar]


def draw(title: str, groups: Sequence[Group]) -> str:
    """The whole picture."""
    body, y = [], HEAD + 14
    for group in groups:
        body.append(f'<text class="title" x="12" y="{y + 12}">{escape(group.title)}</text>')
        y += 26
        most = max((max(bar.value or 0, bar.high) for bar in group.bars), default=0) or 1.0
        for bar in group.bars:
            body += _bar(bar, y, (WIDTH - LEFT - RIGHT) / most)
            y += BAR + GAP
        y += 16
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{y}"/>',
            f'<text class="small" x="12" y="24">{escape(title)}</text>',
            *body,
            "</svg>\n",
        ]
    )


def _bar(bar: Bar, y: int, scale: float) -> Iterator[str]:
    middle = y + BAR / 2
    yield f'<text x="{LEFT - 10}" y="{middle + 4:.0f}" text-anchor="end">{escape(bar.label)}</text>'
    if bar.value is None:
        yield f'<text class="small" x="{LEFT}" y="{middle + 4:.0f}">{escape(bar.note or "not measured")}</text>'
        return
    # Even the slowest is seen.
    width = max(bar.value * scale, 1.0)
    kind = "ours" if bar.ours else "peer"
    yield f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2"/>'
    end = LEFT + max(width, bar.high * scale)
    if bar.high > bar.low:
        yield (
            f'<line class="range" x1="{LEFT + bar.low * scale:.1f}" x2="{LEFT + bar.high * scale:.1f}" '
            f'y1="{middle:.1f}" y2="{middle:.1f}"/>'
        )
    note = f'<tspan class="small">{escape(bar.note)}</tspan>'
    yield f'<text x="{end + 8:.0f}" y="{middle + 4:.0f}">{bar.value:,.0f} {note}</text>'
