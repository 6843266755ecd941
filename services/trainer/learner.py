"""The core's authoritative weights and optimizer, between checkpoints (A2, D10)."""

import logging
from collections.abc import Callable, Collection, Mapping

import torch

from gyre.clock import Clock
from gyre.config import Config
from gyre.errors import GaveUp
from gyre.records import StepUpdated, decode_fact, encode
from gyre.run_folder import RunFolder
from services.trainer import checkpoint
from services.trainer.core.divisor import divisor
from services.trainer.core.events import Batch
from services.trainer.core.plan import ess_factor
from services.trainer.losses.metrics import Sums, add_up, summarise
from services.trainer.model import Policy
from services.trainer.optimizer import Optimizer
from services.trainer.report import step_updated

log = logging.getLogger(__name__)

NOTHING: Mapping[str, str] = {}


class Learner:
    """Blocking throughout: its methods run in the compute thread."""

    def __init__(self, folder: RunFolder, config: Config, policy: Policy, clock: Clock) -> None:
        """Takes up the newest whole checkpoint; the first start makes version 0 from the model directory. Raises GaveUp where there are checkpoints
        and none is whole: to begin anew would delete what is left of the run's weights."""
        self._root = folder.checkpoints
        self._config = config
        self._clock = clock
        self._policy = policy
        self._optimizer = self._make_optimizer(policy, config)
        found = checkpoint.newest(self._root)
        self.damaged = [one for one in checkpoint.folders(self._root) if found is None or one.name > found.folder.name]
        """Folders of newer checkpoints that are not whole."""
        if found is None and self.damaged:
            raise GaveUp(
                f"none of the checkpoints {', '.join(folder.name for folder in self.damaged)} in {self._root} is whole, and the run is not begun "
                f"anew over them: bring one back from a copy, or start another run"
            )
        if found is None:
            torch.manual_seed(config.run.seed)
            found = checkpoint.write(self._root, 0, policy.tensors(), self._optimizer.state())
        else:
            policy.load(found.tensors())
            self._optimizer.load(found.optimizer())
            torch.set_rng_state(torch.frombuffer(bytearray(found.state.rng), dtype=torch.uint8))
            log.info("going on from version %d", found.version)
        if not self.damaged:  # else the newest are not those to be kept
            checkpoint.prune(self._root, config.trainer.checkpoints_kept)
        self.checkpoint = found

    def check_goes_on(self, updated: Collection[int]) -> None:
        """Raises GaveUp where the record knows of an optimizer step (`updated`: the steps done) that the checkpoint in hand does not have: its
        micro-steps were acknowledged and are gone, so the step could be opened again and would never be complete."""
        if (newest := max(updated, default=-1) + 1) <= self.version:
            return
        names = ", ".join(map(str, self.damaged)) or f"{self._root / checkpoint.name_of(newest)}, which is gone"
        raise GaveUp(
            f"version {newest} is on record, and the newest whole checkpoint is of version {self.version}; damaged: {names}. Nothing was "
            f"changed. Bring the folder back from a copy and start the run again, or start another run whose model has the weights "
            f"{self.checkpoint.weights}"
        )

    def _make_optimizer(self, policy: Policy, config: Config) -> Optimizer:
        return Optimizer(policy.parameters, config.trainer, config.run.steps)

    @property
    def version(self) -> int:
        return self.checkpoint.version

    def updated(self) -> StepUpdated | None:
        """The fact of the step that made this version; None for version 0."""
        return decode_fact(self.checkpoint.state.updated) if self.checkpoint.state.updated else None

    def update(
        self, gradient_P: torch.Tensor | None, batch: Batch, micro_cells: dict[str, str], by_sample: dict[str, Sums],
        timed: dict[str, float], opened_at_s: float, burst: int = 0, refused: Mapping[str, str] = NOTHING,
    ) -> StepUpdated:  # fmt: skip
        """One step: from the summed, undivided gradient to a whole checkpoint of version + 1, and the fact to be told of it. `refused` samples
        (with the reason) are as if the batch had not held them. Raises NotFinite, with nothing changed, and GaveUp.

        A batch without gradient leaves weights and running averages alone (AdamW's momentum would move them); its version counts.
        """
        step, start_s = self.version, self._clock.monotonic_s()
        timed, given, batch = dict(timed), self._config.trainer, batch.without(refused)
        timed["set_aside"] = float(len(refused))
        by_norm = divisor(given.norm, given.norm_constant, batch, by_sample)
        if gradient_P is None or not gradient_P.any():
            self._optimizer.zero()
            timed["no_gradient"] = 1.0
        else:
            ess = summarise(add_up(by_sample.values())).get("ess", 1.0)
            timed["ess_factor"] = ess_factor(ess, given.ess_min)
            timed |= self._optimizer.step(gradient_P, by_norm, step, timed["ess_factor"])
        updated_s = self._clock.monotonic_s()
        timed["update_s"] = updated_s - start_s
        told: list[StepUpdated] = []

        def fields() -> dict:
            timed["checkpoint_s"] = self._clock.monotonic_s() - updated_s
            now_s = self._clock.now_s()
            told.append(
                step_updated(step, burst, batch, micro_cells, by_sample, by_norm, timed, opened_at_s, now_s, refused)
            )
            return {
                "sample_ids": list(batch.sample_ids), "micro_ids": list(batch.micro_ids),
                "updated": encode(told[0]),
            }  # fmt: skip

        self.checkpoint = self._write(step + 1, fields)
        return told[0]

    def _write(self, version: int, fields: Callable[[], dict]) -> checkpoint.Checkpoint:
        made = checkpoint.write(self._root, version, self._policy.tensors(), self._optimizer.state(), fields)
        checkpoint.prune(self._root, self._config.trainer.checkpoints_kept)
        return made

    def set_aside(self) -> None:
        """Free what rollout wants: weights, running averages, and the gradient of a step that waits, where they lie on a device of their own.

        On the CPU both roles share one memory, so there is nothing to move and a role change costs next to nothing.
        """
        if self._config.trainer.device != "cpu":
            self._policy.move("cpu")
            self._optimizer.move("cpu")

    def take_up(self) -> None:
        """The reverse."""
        if self._config.trainer.device != "cpu":
            self._policy.move(self._config.trainer.device)
            self._optimizer.move(self._config.trainer.device)
