"""From a run's configuration to the same run emulated: other cells, environment and tasks, and times scaled. Pure."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gyre.cli.dryrun.environment import NAME
from gyre.cli.dryrun.processes import ENVIRONMENT
from gyre.cli.options import apply_override
from gyre.config import Config
from gyre.config.cells import serving
from gyre.config.load import parse
from gyre.config.sections import VariantConfig
from gyre.config.staleness import burst_max, depth_steps, law_steps, law_words
from gyre.errors import ConfigError

CALL_TOKENS = 16
"""Tokens that stand for one emulated call (as the emulated engine samples them)."""
TURN_TOKENS = 96
"""More than an emulated turn takes of the context: its call, and the environment's words."""
DEVICE = "emulated"
EXECUTION_S_MIN = 1.0
"""Below this the median execution is no longer than what the services need to lease, start and end it."""
LOAD_MIN = 0.001
"""A knee below it is no curve of an engine's."""

_replace = msgspec.structs.replace


@dataclass(frozen=True)
class Variant:
    """One run of a comparison."""

    name: str
    role: str
    config: Config
    """Whole, not yet emulated."""


def load_dry(path: Path, overrides: tuple[str, ...]) -> dict[str, Any]:
    """The file's tree with overrides laid over it; a configuration of a dry run needs no model. Raises ConfigError."""
    try:
        tree = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    for override in overrides:
        apply_override(tree, override)
    tree.setdefault("model", {"path": NAME})
    return tree


def variants(tree: dict[str, Any], where: str) -> list[Variant]:
    """What a comparison runs, in order; the configuration alone where it names none. Raises ConfigError."""
    config = parse(tree, where)
    _check_workload(config, where)
    given = config.emulation.variants
    if not given:
        return [Variant(config.run.name, "ours", config)]
    found = [_variant(tree, variant, where) for variant in given]
    _check(found, where)
    return found


def _check_workload(config: Config, where: str) -> None:
    """What is pretended must suit the run: the defaults speak of hours."""
    given, wall_s = config.emulation, config.tasks.wall_s
    if given.work_median_s >= wall_s:
        raise ConfigError(
            f"{where}: emulation.work_median_s {given.work_median_s:g} is not below tasks.wall_s {wall_s:g}: most executions would be cut; "
            "say in [emulation] how long yours are and what training a group costs (`gyre config show` explains each field)"
        )
    if given.load_curve == "power" and given.load_a < LOAD_MIN:
        raise ConfigError(
            f"{where}: emulation.load_a {given.load_a:g} of the load curve `power` leaves a cell no speed: at least {LOAD_MIN}"
        )
    if given.work_median_s / given.time_scale < EXECUTION_S_MIN:
        raise ConfigError(
            f"{where}: emulation.time_scale {given.time_scale:g} makes an execution of {given.work_median_s:g} s last "
            f"{given.work_median_s / given.time_scale:.2g} s, and this machine's own overheads would be what is measured; at most "
            f"{given.work_median_s / EXECUTION_S_MIN:g} is possible"
        )


def _variant(tree: dict[str, Any], variant: VariantConfig, where: str) -> Variant:
    scheduler = tree.get("scheduler", {}) | variant.scheduler
    run = tree.get("run", {}) | {"name": variant.name}
    config = parse(tree | {"scheduler": scheduler, "run": run}, f"{where}, variant {variant.name}")
    return Variant(variant.name, variant.role, config)


def _check(found: list[Variant], where: str) -> None:
    """One is ours, names differ, all have the same mean staleness."""
    names, ours = [variant.name for variant in found], [variant for variant in found if variant.role == "ours"]
    if len(set(names)) != len(names):
        raise ConfigError(f"{where}: emulation.variants need different names, not {', '.join(names)}")
    if len(ours) != 1:
        raise ConfigError(f"{where}: exactly one of emulation.variants has role `ours`, not {len(ours)}")
    law = law_steps(ours[0].config.scheduler)
    for variant in found:
        if (other := law_steps(variant.config.scheduler)) != law:
            given = variant.config.scheduler
            right = depth_steps(law, given.steps_per_publish, given.dispatch)
            hint = (
                f"extra_depth_steps = {right:g} would make it so"
                if right >= 0
                else f"steps_per_publish is at most {burst_max(law, given.dispatch)}"
            )
            raise ConfigError(
                f"{where}: variants are compared at equal staleness: `{variant.name}` has {other:g} steps by "
                f"{law_words(given.dispatch)}, `{ours[0].name}` {law:g}; {hint}"
            )


def emulated(config: Config, model: Path) -> Config:
    """What the services of the dry run are given. `model` is an emulated model directory."""
    given, scheduler = config.emulation, config.scheduler
    scale = given.time_scale
    calls = given.calls or calls_of(config)
    context = CALL_TOKENS + TURN_TOKENS * (calls + 1)
    # Where no environment says how many it runs, as many as the cells hold: what waits for a slot then has not begun.
    slots = sum(e.slots * e.processes for e in config.environments) or config.rollout.slots * len(serving(scheduler))
    tiers = [_replace(tier, predicted_s_max=tier.predicted_s_max / scale) for tier in scheduler.tiers]
    return _replace(
        config,
        model=_replace(config.model, path=str(model), recipe=[], demonstrations=[]),
        scheduler=_replace(
            scheduler, tiers=tiers, aging_s=scheduler.aging_s / scale, starvation_s=scheduler.starvation_s / scale
        ),
        rollout=_replace(config.rollout, device=DEVICE, context_max=context),
        # One micro-step a sample: what several cells share of a step is then as fine as it can be.
        trajproc=_replace(config.trajproc, wait_s=config.trajproc.wait_s / scale, micro_tokens=1),
        trainer=_replace(config.trainer, device=DEVICE),
        ledger=_replace(config.ledger, traces=False, otlp_endpoint=""),
        tasks=_replace(
            config.tasks, source="gyre.cli.dryrun.environment:tasks", environment=NAME,
            wall_s=config.tasks.wall_s / scale, turns_max=max(calls, config.tasks.turns_max), context_tokens_max=context,
            output_tokens_max=CALL_TOKENS,
        ),
        evaluation=_replace(config.evaluation, tasks=0),
        environments=[_replace(ENVIRONMENT, slots=slots)],
        emulation=_replace(given, calls=calls, variants=[]),
    )  # fmt: skip


def calls_of(config: Config) -> int:
    """Model calls of one execution, as `trajproc.turns_per_step` expects them of B·N executions; at least 1."""
    executions = config.scheduler.groups_per_step * config.scheduler.group_size
    return max(1, round(config.trajproc.turns_per_step / executions))
