"""A picture of one run as SVG, written by hand so that nothing has to be installed: cell roles, waterlevel and capacity, staleness, over hours."""

from collections.abc import Callable
from html import escape

from services.scheduler.simulator.measures import HOUR_S, Trace
from services.scheduler.simulator.spec import Spec

WIDTH, LEFT, RIGHT = 1000, 70, 20
LANE, PANEL, GAP, TOP = 16, 130, 44, 44
COLOURS = {
    "rollout": "#4c9f70",
    "to_training": "#c9c9c9",
    "training": "#e07a3f",
    "to_rollout": "#c9c9c9",
    "lost": "#2b2b2b",
}
NAMES = {"rollout": "rollout", "training": "training", "to_training": "changing", "lost": "lost"}
INK, GRID, BLUE, RED = "#222222", "#dddddd", "#3465a4", "#c0392b"


def draw(spec: Spec, trace: Trace) -> str:
    """The whole run, as a document."""
    end_s = max([at_s for at_s, *_ in trace.staleness] + [at_s for at_s, *_ in trace.waterlevel] + [1.0])
    scale = (WIDTH - LEFT - RIGHT) / end_s

    def x(at_s: float) -> float:
        return LEFT + at_s * scale

    cells = len(spec.cell_nodes)
    levels_at = TOP + cells * LANE + GAP
    staleness_at = levels_at + PANEL + GAP
    height = staleness_at + PANEL + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        _text(LEFT, 16, spec.name or spec.scheduler.mode, size=14),
        *_legend(),
        *[_line(x(at_s), TOP, x(at_s), staleness_at + PANEL, GRID) for at_s in trace.bursts],
        *_roles(trace, cells, x, end_s),
        *_panel(levels_at, "executions: unfinished (blue), capacity (green)", x, [
            ([(at_s, float(level)) for at_s, _, level in trace.waterlevel], COLOURS["rollout"]),
            ([(at_s, float(level)) for at_s, level, _ in trace.waterlevel], BLUE),
        ], is_stepped=True),
        *_panel(staleness_at, "staleness of each step, steps: dispatch (blue), tokens (red, dashed)", x, [
            ([(at_s, value) for at_s, value, _ in trace.staleness], BLUE),
            ([(at_s, value) for at_s, _, value in trace.staleness], RED),
        ], is_stepped=False),
        *_hours(end_s, x, staleness_at + PANEL),
        "</svg>",
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def _legend() -> list[str]:
    parts = []
    for index, (role, name) in enumerate(NAMES.items()):
        at = LEFT + 90 * index
        parts += [f'<rect x="{at}" y="24" width="11" height="11" fill="{COLOURS[role]}"/>', _text(at + 15, 33, name)]
    return [*parts, _text(LEFT + 90 * len(NAMES), 33, "grey lines: bursts open")]


def _roles(trace: Trace, cells: int, x: Callable[[float], float], end_s: float) -> list[str]:
    parts = []
    for cell in range(cells):
        changes = [(at_s, role) for at_s, index, role in trace.roles if index == cell]
        ends = [at_s for at_s, _ in changes[1:]] + [end_s]
        top = TOP + cell * LANE
        parts.append(_text(8, top + 11, f"cell-{cell}"))
        for (at_s, role), until_s in zip(changes, ends, strict=True):
            if until_s > at_s:
                parts.append(
                    f'<rect x="{x(at_s):.2f}" y="{top}" width="{x(until_s) - x(at_s):.2f}" height="{LANE - 3}" fill="{COLOURS[role]}"/>'
                )
    return parts


def _panel(
    top: int,
    title: str,
    x: Callable[[float], float],
    curves: list[tuple[list[tuple[float, float]], str]],
    is_stepped: bool,
) -> list[str]:
    highest = max([value for points, _ in curves for _, value in points] + [1e-9])
    parts = [_text(LEFT, top - 6, title), _line(LEFT, top + PANEL, WIDTH - RIGHT, top + PANEL, INK)]
    for share in (0.0, 0.5, 1.0):
        parts.append(_text(LEFT - 8, top + PANEL * (1 - share) + 4, f"{highest * share:.3g}", anchor="end"))
    for points, colour in curves:
        path, last = [], None
        for at_s, value in points:
            y = top + PANEL * (1 - value / highest)
            if is_stepped and last is not None:
                path.append(f"{x(at_s):.2f},{last:.2f}")
            path.append(f"{x(at_s):.2f},{y:.2f}")
            last = y
        dashes = ' stroke-dasharray="6 4"' if colour == RED else ""  # where both are equal both are seen
        parts.append(f'<polyline points="{" ".join(path)}" fill="none" stroke="{colour}" stroke-width="1.3"{dashes}/>')
    return parts


def _hours(end_s: float, x: Callable[[float], float], at: int) -> list[str]:
    hours = end_s / HOUR_S
    step = next(size for size in (0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e9) if hours / size <= 12)
    marks = [index * step for index in range(int(hours / step) + 1)]
    return [_text(x(mark * HOUR_S), at + 18, f"{mark:g} h", anchor="middle") for mark in marks]


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, size: int = 11, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{INK}">{escape(text)}</text>'
