"""Reading, checking, storing a configuration. Errors say where, what is wrong, and the nearest thing that would be right."""

import ast
import difflib
import hashlib
import inspect
import math
import os
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import tomli_w

from gyre.config import evaluators, sections
from gyre.config.sections import Config
from gyre.config.sections.rollout import check_rule_harnesses
from gyre.config.staleness import law_steps, law_words
from gyre.errors import ConfigError, Conflict

RESOLVED = "# Resolved configuration"
"""What every file that `store` wrote begins with."""


def load(path: Path) -> Config:
    """A TOML file → Config. Raises ConfigError."""
    try:
        data = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    return parse(data, str(path))


def parse(data: dict[str, Any], where: str) -> Config:
    """Raises ConfigError for unknown fields, wrong types, values out of bounds, and settings that do not fit together."""
    refuse_unknown(data, Config, where)
    if strange := [*no_numbers(data)]:
        raise ConfigError(f"{where}: " + "; ".join(strange))
    try:
        config = msgspec.convert(data, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from error
    _check_together(config, where)
    return config


def fingerprint(config: Config) -> str:
    """12 hexadecimal digits that change with any setting (C7)."""
    return hashlib.sha256(msgspec.json.encode(config, order="sorted")).hexdigest()[:12]


def store(config: Config, path: Path) -> None:
    """Write the resolved configuration, every default spelled out; it appears when it is whole. Raises Conflict as `refuse_foreign`."""
    refuse_foreign(path)
    text = f"{RESOLVED}, fingerprint {fingerprint(config)}\n" + tomli_w.dumps(msgspec.to_builtins(config))
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(text)
    os.replace(temporary, path)


def refuse_foreign(path: Path) -> None:
    """Raises Conflict where a file stands at `path` that `store` did not write: somebody's own configuration."""
    try:
        with path.open("rb") as file:
            is_ours = file.read(len(RESOLVED)) == RESOLVED.encode()
    except FileNotFoundError:
        return
    if not is_ours:
        raise Conflict(f"{path} is a configuration of your own, and would be overwritten: choose another folder")


def load_resolved(path: Path) -> tuple[Config, str]:
    """What a service reads at start: configuration and its fingerprint."""
    config = load(path)
    return config, fingerprint(config)


@cache
def field_docs(section: type) -> dict[str, str]:
    """Field → the docstring under it."""
    tree = ast.parse(inspect.getsource(sys.modules[section.__module__]))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == section.__name__)
    docs = {}
    for field, following in zip(body, [*body[1:], None], strict=True):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            docs[field.target.id] = str(following.value.value)
    return docs


def no_numbers(tree: Any, path: str = "") -> Iterator[str]:
    """What TOML takes for a number and no setting can be: nan, inf, and integers beyond 64 bits. Bounds alone would let them through: nan is
    neither below nor above anything."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from no_numbers(value, f"{path}.{name}" if path else str(name))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from no_numbers(value, f"{path}[{index}]")
    elif isinstance(tree, float) and not math.isfinite(tree):
        yield f"`{path}` is {tree}: write a finite number"
    elif isinstance(tree, int) and not -(2**63) <= tree < 2**64:
        yield f"`{path}` has more than 64 bits"


def refuse_unknown(data: Any, section: type, where: str, prefix: str = "") -> None:
    """Raises ConfigError for a field that `section` or one inside it does not have, with the nearest that it has."""
    if not isinstance(data, dict):
        return
    fields = {field.name: field.type for field in msgspec.structs.fields(section)}
    for name, value in data.items():
        path = f"{prefix}{name}"
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f"did you mean `{prefix}{near[0]}`?" if near else f"known here: {', '.join(fields)}"
            raise ConfigError(f"{where}: unknown setting `{path}`; {hint}")
        inner = fields[name]
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            refuse_unknown(value, inner, where, f"{path}.")
        elif (
            get_origin(inner) is list
            and isinstance(get_args(inner)[0], type)
            and issubclass(get_args(inner)[0], msgspec.Struct)
        ):
            for index, item in enumerate(value if isinstance(value, list) else []):
                refuse_unknown(item, get_args(inner)[0], where, f"{path}[{index}].")


def _check_together(config: Config, where: str) -> None:
    """Settings that are each right and do not fit each other."""
    problems = []
    tasks, rollout, scheduler = config.tasks, config.rollout, config.scheduler
    if tasks.context_tokens_max > rollout.context_max:
        problems.append(
            f"tasks.context_tokens_max {tasks.context_tokens_max} is more than rollout.context_max {rollout.context_max}, "
            "the longest context an engine serves"
        )
    law = law_steps(scheduler)
    if config.trajproc.age_steps_max < law:
        problems.append(
            f"trajproc.age_steps_max {config.trajproc.age_steps_max} is below the mean staleness {law:g} that "
            f"{law_words(scheduler.dispatch)} gives: most samples would be dropped"
        )
    problems += _check_credit(config.trajproc)
    if config.environments and tasks.environment not in {environment.name for environment in config.environments}:
        names = ", ".join(environment.name for environment in config.environments)
        problems.append(f"tasks.environment `{tasks.environment}` is none of the environments: {names}")
    if not config.model.path and not config.model.recipe:
        problems.append(
            "neither model.path nor model.recipe is set: name a Hugging Face directory or a command that makes one"
        )
    try:
        own = [environment.harness for environment in config.environments if environment.harness]
        check_rule_harnesses(rollout.role_rules, [*own, *([rollout.harness] if rollout.harness else [])])
    except ValueError as error:
        problems.append(str(error))
    problems += _check_cells(scheduler) + tier_problems(scheduler)
    problems += evaluators.problems(config)
    if problems:
        raise ConfigError(f"{where}: " + "; ".join(problems))


def _check_credit(trajproc: sections.TrajprocConfig) -> list[str]:
    """Segments that can be cut, and sums whose parts are of one unit."""
    problems = []
    shortest, longest = trajproc.segment_calls_min, trajproc.segment_calls_max
    if longest < 2 * shortest - 1:
        problems.append(
            f"trajproc.segment_calls_max {longest} is less than 2·segment_calls_min − 1 = {2 * shortest - 1}: an execution one call "
            "longer than the longest segment could not be cut into two that are long enough"
        )
    if trajproc.advantage in ("group_std", "max_rl"):
        asks = [
            f"trajproc.{name} {value}" for name, value, is_mixed in (
                ("credit", trajproc.credit, trajproc.credit == "fusion"),
                ("baseline_fallback", trajproc.baseline_fallback, trajproc.baseline_fallback == "running"),
            ) if is_mixed
        ]  # fmt: skip
        problems += [
            f"{asked} is in units of reward, and trajproc.advantage {trajproc.advantage} is not (it divides by the group's own figures): "
            "use it with `group`, `leave_one_out`, `group_median` or `optimal`"
            for asked in asks
        ]
    return problems


def tier_problems(scheduler: sections.SchedulerConfig) -> list[str]:
    """Tiers that a task could not be put into: each is known by its name, and takes what the ones before it do not."""
    tiers = scheduler.tiers
    if not tiers:
        return ["scheduler.tiers is empty: leave it out for one tier that takes every task"]
    names = [tier.name for tier in tiers]
    problems = [f"scheduler.tiers has `{name}` twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    for before, after in pairwise(tiers):
        if after.predicted_s_max <= before.predicted_s_max:
            problems.append(
                f"scheduler.tiers: nothing is ever put into `{after.name}`, whose predicted_s_max {after.predicted_s_max:g} is not above the "
                f"{before.predicted_s_max:g} of `{before.name}`; write the shortest first"
            )
    return problems


def _check_cells(scheduler: sections.SchedulerConfig) -> list[str]:
    """Which cells train, which serve, which do both, by mode."""
    cells, training, standalone = scheduler.cells, scheduler.training_cells, scheduler.standalone_cells
    if scheduler.mode == "async":
        if training < 1 or standalone < 1 or training + standalone != cells:
            return [
                f"scheduler.mode async is a fixed split: training_cells {training} + standalone_cells {standalone} must be cells {cells}, "
                "and each at least 1"
            ]
        return []
    problems = []
    if training:
        problems.append(f"scheduler.training_cells {training} is for mode async; in mode {scheduler.mode} it is 0")
    if standalone >= cells:
        problems.append(
            f"scheduler.standalone_cells {standalone} leaves none of {cells} cells to train: at most {cells - 1}"
        )
    return problems
