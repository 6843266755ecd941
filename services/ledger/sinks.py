"""The figures of every step for the tools that people already look at: TensorBoard, Weights & Biases, MLflow (E).

A thread of its own takes steps from a queue: a sink that is slow or away never holds up the books; what it loses is counted
and said in the log. Each is an extra of the package and is imported only where it is asked for.
"""

import logging
import os
import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from gyre.errors import ConfigError
from gyre.records import BatchClosed, Fact, StepUpdated
from services.ledger.core.parts import in_parts

log = logging.getLogger(__name__)

STEPS_WAITING_MAX = 4096
"""Steps that wait for a slow sink; further ones are lost to it."""


class Sink(Protocol):
    """Where the figures of steps go."""

    def log(self, step: int, figures: Mapping[str, float], at_s: float) -> None: ...

    def close(self) -> None: ...


MLFLOW_AT_ONCE = 1_000
"""Metrics of one request: its server refuses more, the whole of them."""


class TensorBoard:
    """Event files in `folder`/tensorboard: `tensorboard --logdir` shows them."""

    def __init__(self, run: str, folder: Path) -> None:
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), flush_secs=10)

    def log(self, step: int, figures: Mapping[str, float], at_s: float) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step, walltime=at_s)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A W&B run of the run's name; offline in `folder`/wandb unless WANDB_MODE says otherwise."""

    def __init__(self, run: str, folder: Path) -> None:
        import wandb

        mode = os.environ.get("WANDB_MODE") or ("online" if os.environ.get("WANDB_API_KEY") else "offline")
        (folder / "wandb").mkdir(exist_ok=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "gyre"),
            name=run,
            id=run,
            resume="allow",
            dir=str(folder),
            mode=mode,
        )

    def log(self, step: int, figures: Mapping[str, float], at_s: float) -> None:
        self._run.log(dict(figures), step=step)

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """An MLflow run of the run's name; in `folder`/mlflow.db unless MLFLOW_TRACKING_URI says otherwise."""

    def __init__(self, run: str, folder: Path) -> None:
        from mlflow.entities import Metric
        from mlflow.tracking import MlflowClient

        self._metric = Metric
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder / 'mlflow.db'}")
        named = os.environ.get("MLFLOW_EXPERIMENT_NAME", "gyre")
        found = self._client.get_experiment_by_name(named)
        experiment = found.experiment_id if found else self._client.create_experiment(named)
        mine = self._client.search_runs([experiment], f"attributes.run_name = '{run}'", max_results=1)
        self._id = (mine[0] if mine else self._client.create_run(experiment, run_name=run)).info.run_id

    def log(self, step: int, figures: Mapping[str, float], at_s: float) -> None:
        stamp_ms = int(1000 * at_s)
        for some in in_parts(
            (self._metric(name, value, stamp_ms, step) for name, value in figures.items()), MLFLOW_AT_ONCE
        ):
            self._client.log_batch(self._id, some)

    def close(self) -> None:
        self._client.set_terminated(self._id)


KINDS: dict[str, Callable[[str, Path], Any]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases, "mlflow": MLflow}


def open_sinks(names: list[str], run: str, folder: Path) -> "Sinks | None":
    """The configured sinks, ready; None where there are none. Raises ConfigError when one's package is not installed."""
    made = []
    for name in dict.fromkeys(names):
        try:
            made.append(KINDS[name](run, folder))
        except ModuleNotFoundError as error:
            for one in made:
                one.close()
            raise ConfigError(
                f"ledger.sinks: {name} needs {error.name}, which is not installed: pip install 'gyre-rl[{name}]'"
            ) from error
    return Sinks(made) if made else None


class Sinks:
    """`see` facts; `close` writes what waits."""

    def __init__(self, sinks: list[Sink]) -> None:
        self._sinks = sinks
        self._batch: dict[int, dict[str, float]] = {}
        self._waiting: queue.Queue[tuple[int, dict[str, float], float] | None] = queue.Queue(STEPS_WAITING_MAX)
        self.lost = 0
        """Steps that a sink did not take."""
        self._thread = threading.Thread(target=self._work, name="ledger-sinks", daemon=True)
        self._thread.start()

    def see(self, fact: Fact) -> None:
        """Returns at once. A step's figures go out with its update, those of its batch among them."""
        if isinstance(fact, BatchClosed):
            self._batch[fact.step] = batch_figures(fact)
        elif isinstance(fact, StepUpdated):
            figures = {**self._batch.pop(fact.step, {}), **step_figures(fact)}
            try:
                self._waiting.put_nowait((fact.step, figures, fact.at_s))
            except queue.Full:
                self._lose(f"{STEPS_WAITING_MAX} steps wait for it already")

    def close(self) -> None:
        """Ends after all that was seen is with every sink."""
        self._waiting.put(None)
        self._thread.join()
        for sink in self._sinks:
            try:
                sink.close()
            except Exception as error:
                log.warning("%s did not close: %s", type(sink).__name__, error)

    def _work(self) -> None:
        while (step := self._waiting.get()) is not None:
            for sink in self._sinks:
                try:
                    sink.log(*step)
                except Exception as error:  # a sink's trouble is its own
                    self._lose(f"{type(sink).__name__}: {error}")

    def _lose(self, why: str) -> None:
        self.lost += 1
        if self.lost == 1 or self.lost % 100 == 0:
            log.warning("%d steps are lost to sinks; the newest: %s", self.lost, why)


def batch_figures(fact: BatchClosed) -> dict[str, float]:
    """`batch/…`: what the batch was made of."""
    return {
        "batch/staleness_mean": fact.staleness_mean,
        "batch/staleness_max": float(fact.staleness_max),
        "batch/turns": float(fact.turns),
        "batch/executions": float(fact.divisor),
        "batch/truncated_share": fact.truncated_share,
        "batch/no_gradient": float(fact.no_gradient),
    }


def step_figures(fact: StepUpdated) -> dict[str, float]:
    """`train/…`: what the trainer measured."""
    return {
        "train/policy_version": float(fact.version), "train/samples": float(len(fact.sample_ids)),
        "train/step_s": max(0.0, fact.at_s - fact.opened_at_s),
        **{f"train/{name}": value for name, value in fact.metrics.items()},
    }  # fmt: skip
