"""What one sees while a run trains: a panel on a terminal, a line every few seconds elsewhere."""

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gyre.cli.training.progress import Progress, success_share

STRIP = 60
"""Columns of a cell's strip: the whole run so far, or its last STRIP · STRIP_S seconds."""
STRIP_S = 2.0
_MARKS = {"rollout": ("▄", "cyan"), "training": ("█", "green"), "changing": ("░", "yellow"), "": ("·", "dim")}
_BARS = " ▁▂▃▄▅▆▇█"


class View:
    """One run's progress with what the driver knows about it."""

    def __init__(self, progress: Progress, steps: int, law: float, run: str) -> None:
        self.progress = progress
        self.steps = steps
        self.law = law
        self.run = run
        self.phase = "starting"
        self.before: set[str] = set()
        self.after: set[str] = set()
        self.heldout: list[tuple[str, float]] = []
        self._rewards: list[float] = []
        self._seen_step = 0

    def line(self) -> str:
        """Everything in one line, for logs."""
        p = self.progress
        parts = [f"{self.phase}: step {p.steps}/{self.steps}", f"waterlevel {p.waterlevel}/{p.capacity}"]
        if p.lanes:
            parts.append("cells " + " ".join(_letter(lane.marks[-1][1]) for _, lane in sorted(p.lanes.items())))
        parts.append(f"staleness {_number(p.staleness_mean)} (law {self.law:g})")
        if p.rewards:
            parts.append(f"reward {_mean(p.rewards):.2f} success {_mean(p.successes):.0%}")
        parts += [f"held-out {self._heldout()}", f"trained {len(p.trained)}", f"dropped {_counts(p.drops)}"]
        return ", ".join(part for part in parts if part)

    def render(self) -> Panel:
        p = self.progress
        grid = Table.grid(padding=(0, 2))
        grid.add_row("step", f"{p.steps} of {self.steps}", "waterlevel", f"{p.waterlevel} of {p.capacity}")
        grid.add_row(
            "staleness", f"{_number(p.staleness_mean)} (law {self.law:g})", "role changes",
            f"{p.role_changes}, {p.mid_batch_joins} joined mid-batch",
        )  # fmt: skip
        reward = f"{_mean(p.rewards):.2f}, success {_mean(p.successes):.0%}" if p.rewards else "—"
        grid.add_row("reward", reward, "held-out", self._heldout() or "—")
        grid.add_row("trained", str(len(p.trained)), "dropped", _counts(p.drops))
        strips = [self._strip(name) for name in sorted(p.lanes)]
        parts = [grid, *strips, Text("reward  " + self._curve(), style="magenta")]
        if p.alarms:
            parts.append(Text("alarms  " + _counts(dict(p.alarms)), style="red"))
        legend = "▄ rollout █ training ░ changing"
        return Panel(Group(*parts), title=f"{self.run} · {self.phase}", subtitle=legend, width=100)

    def _strip(self, cell: str) -> Text:
        p = self.progress
        lane = p.lanes[cell]
        spacing_s = max(STRIP_S, (p.now_s - p.begun_s) / STRIP)
        text = Text(f"{cell:<8}")
        for column in range(STRIP):
            mark, style = _MARKS[lane.at(p.begun_s + (column + 1) * spacing_s)]
            if p.begun_s + column * spacing_s > p.now_s:
                mark, style = " ", ""
            text.append(mark, style)
        return text

    def _curve(self) -> str:
        p = self.progress
        if p.steps > self._seen_step and p.rewards:
            self._seen_step = p.steps
            self._rewards.append(_mean(p.rewards))
        return "".join(_BARS[min(8, max(0, round(8 * value)))] for value in self._rewards[-STRIP:])

    def _heldout(self) -> str:
        parts = [f"{name} {share:.0%}" for name, share in self.heldout]
        running = {"evaluation_before": self.before, "evaluation_after": self.after}.get(self.phase)
        if running:
            verdicts = self.progress.evaluated(running)
            share = success_share(verdicts)
            parts.append(f"{len(verdicts)}/{len(running)}" + (f" at {share:.0%}" if share is not None else ""))
        return " → ".join(parts)


def show_summary(console: Console, summary: dict) -> None:
    """The run's result for people."""
    table = Table(title=f"run {summary['run']}", show_header=False, min_width=60)
    before, after = summary["success_before"], summary["success_after"]
    table.add_row("held-out success", f"{_share(before)} → {_share(after)}")
    table.add_row("optimizer steps", str(summary["steps"]))
    table.add_row("role changes", f"{summary['role_changes']}, {summary['mid_batch_joins']} joined mid-batch")
    table.add_row("staleness", f"{_number(summary['staleness_mean'])} steps, law {summary['staleness_law']:g}")
    dropped = sum(summary["dropped"].values())
    balance = (
        f"{summary['dispatched']} = {summary['trained']} trained + {dropped} dropped + {summary['in_flight']} in flight"
    )
    table.add_row("dispatched", balance)
    table.add_row("dropped", _counts(summary["dropped"]))
    table.add_row("turns, tokens", f"{summary['turns']}, {summary['tokens_sampled']}")
    for criterion, passed in summary["audit"].items():
        table.add_row(f"audit {criterion}", "[green]pass[/]" if passed else "[red]FAIL[/]")
    table.add_row("wall", ", ".join(f"{name} {seconds:.0f} s" for name, seconds in summary["wall_s"].items()))
    console.print(table)


def _letter(role: str) -> str:
    return {"rollout": "R", "training": "T", "changing": "~"}.get(role, "·")


def _mean(values) -> float:
    return sum(values) / len(values) if values else 0.0


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.1%}"


def _counts(counts: dict[str, int]) -> str:
    return " ".join(f"{name} {count}" for name, count in counts.items()) or "0"
