"""AdamW over an undivided sum of gradients, and the flattened gradient that travels between cells (A2, B7)."""

from collections.abc import Sequence
from typing import Any

import torch

from gyre.config import TrainerConfig
from gyre.errors import GaveUp, InvariantBroken
from services.trainer.core.plan import learning_rate


def flat_gradient(parameters: Sequence[torch.nn.Parameter]) -> torch.Tensor:
    """[P] float32 on the CPU: a copy of the accumulated gradients, zeros where there is none. The accumulators are kept, so that a
    reduction that fails can be repeated."""
    parts = [torch.zeros(p.numel()) if p.grad is None else p.grad.detach().float().cpu().flatten() for p in parameters]
    return torch.cat(parts)


def set_gradient(parameters: Sequence[torch.nn.Parameter], flat_P: torch.Tensor) -> None:
    """The reverse of `flat_gradient`: the accumulators hold `flat_P` from now on."""
    parts = flat_P.split([p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter).to(parameter.device, parameter.dtype)


class NotFinite(InvariantBroken):
    """A gradient that must not be applied."""


class Optimizer:
    """The core's own: satellites have none."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter], config: TrainerConfig, steps: int = 0) -> None:
        """`steps`: length of the run, over which the learning rate falls."""
        self._parameters = list(parameters)
        self._config = config
        self._steps = steps
        self._adamw = torch.optim.AdamW(
            self._parameters, lr=config.lr, betas=config.betas, weight_decay=config.weight_decay, foreach=True
        )

    def step(self, gradient_P: torch.Tensor, divisor: float, step: int, lr_factor: float = 1.0) -> dict[str, float]:
        """Divide the summed gradient by the batch's divisor, clip, and step at the schedule's rate times `lr_factor`; returns grad_norm and lr.

        Raises NotFinite for such a gradient, with nothing touched, and GaveUp where the update made weights that are not finite: neither may be
        published.
        """
        gradient_P = gradient_P / divisor
        norm = gradient_P.norm()
        if not torch.isfinite(norm):
            raise NotFinite(f"step {step}: the sum of gradients is not finite; nothing of it is applied")
        gradient_P *= (self._config.grad_norm_max / (norm + 1e-6)).clamp(max=1.0)
        set_gradient(self._parameters, gradient_P)
        given = self._config
        lr = lr_factor * learning_rate(step, given.lr, given.lr_warmup_steps, self._steps, given.lr_final_share)
        for group in self._adamw.param_groups:
            group["lr"] = lr
        self._adamw.step()
        self.zero()
        if not all(parameter.isfinite().all() for parameter in self._parameters):
            raise GaveUp(
                f"step {step}: a finite gradient (norm {norm.item():g}, clipped to {given.grad_norm_max:g}) made weights that are not finite; "
                f"trainer.lr is {given.lr:g}, trainer.weight_decay {given.weight_decay:g}. Version {step} is whole on disk"
            )
        return {"grad_norm": norm.item(), "lr": lr}

    def zero(self) -> None:
        """Free the accumulated gradients."""
        self._adamw.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Any]:
        return self._adamw.state_dict()

    def load(self, state: dict[str, Any]) -> None:
        self._adamw.load_state_dict(state)

    def move(self, device: str) -> None:
        """Move the running averages, where a role change sets training state aside on another device's memory."""
        for values in self._adamw.state.values():
            for name, value in values.items():
                if isinstance(value, torch.Tensor) and value.ndim:
                    values[name] = value.to(device)
