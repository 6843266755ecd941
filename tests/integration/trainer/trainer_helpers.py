"""A tiny policy, rows by hand, what one process would make of it, and the facts that scheduler, gateway, rollout cell and trajproc would say."""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from nats.js.errors import NotFoundError
from transformers import AutoModelForCausalLM, Qwen3Config

from gyre.api.trainer.v1 import core_pb2, core_pb2_grpc
from gyre.clock import SystemClock
from gyre.config.cells import serves
from gyre.ids import micro_id
from gyre.records import (
    AlarmRaised,
    BatchClosed,
    BatchExtended,
    BurstOpened,
    MicroStep,
    RoleChanged,
    Row,
    StepJoined,
    StepOpened,
    StepUpdated,
    WeightsPublished,
    pack,
)
from gyre.rpc import open_channel
from gyre.run_folder import RunFolder
from services.trainer.core.events import Batch
from services.trainer.gradient import accumulate
from services.trainer.learner import Learner
from services.trainer.model import Policy
from services.trainer.optimizer import flat_gradient
from tests.support import WAIT_S, TestRun

VOCAB = 128


def make_model(folder: Path, seed: int = 0) -> None:
    """Qwen3, one layer, 32 wide, random; a tokenizer file that is only looked for."""
    config = Qwen3Config(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, head_dim=32, max_position_embeddings=256, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(seed)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")


def make_row(sample: str, seed: int, length: int = 24, part: int = 0) -> Row:
    """A row of one path: calls of up to eight tokens, about six in ten of them targets."""
    rng = np.random.default_rng(seed)
    targets = (np.arange(length) > 0) & (rng.random(length) < 0.6)
    targets[-1] = True
    return Row(
        sample_id=sample, part=part, tokens=pack(rng.integers(0, VOCAB, length), "int32"),
        run_lengths=pack([length], "int32"), run_parents=pack([-1], "int32"),
        sequences=pack(np.where(targets, 100 * part + np.arange(length) // 8, -1), "int32"),
        logprobs=pack((-np.log(VOCAB) + 0.1 * rng.standard_normal(length))[targets], "float32"),
        versions=pack(np.zeros(targets.sum()), "int32"),
        advantages=pack(np.full(targets.sum(), rng.standard_normal()), "float32"),
        temperatures=pack(np.ones(targets.sum()), "float32"),
    )  # fmt: skip


def make_group(step: int, index: int, members: int = 2, seed: int = 0) -> list[MicroStep]:
    """One micro-step for each member of a group."""
    group = f"g{index:06d}"
    rows = [make_row(f"{group}-e{member}-a1", seed * 1000 + index * 10 + member) for member in range(members)]
    return [
        MicroStep(
            micro_id=micro_id(step, group, piece), step=step, group_id=group, rows=[row], tokens=row.length, at_s=0.0
        )
        for piece, row in enumerate(rows)
    ]


def samples_of(micros: list[MicroStep]) -> list[str]:
    return sorted({row.sample_id for micro in micros for row in micro.rows})


class Run(TestRun):
    """A run whose other services are played by the test."""

    __test__ = False

    def __init__(self, root: Path, cells: int = 3, scheduler: dict[str, Any] | None = None, **trainer: Any) -> None:
        defaults = {"claim_s": 4.0, "lr": 1e-3, "threads": 1}
        super().__init__(root, {"scheduler": {"cells": cells, **(scheduler or {})}, "trainer": {**defaults, **trainer}})
        make_model(root / "model")
        self.bursts = 0
        self.changes: dict[str, int] = {}
        self.trainers: dict[int, asyncio.subprocess.Process] = {}

    async def __aenter__(self) -> "Run":
        await super().__aenter__()
        self.scheduler, self.gateway, self.cell, self.trajproc = [
            await self.bus(name) for name in ("scheduler", "gateway", "cell", "trajproc")
        ]
        self.listen(
            (
                RoleChanged,
                StepOpened,
                StepJoined,
                StepUpdated,
                WeightsPublished,
                BatchExtended,
                BatchClosed,
                AlarmRaised,
            )
        )
        await self.burst(0)
        return self

    async def burst(self, first_step: int, steps: int = 2, core_stays: bool = False) -> None:
        """A boundary: the core trains these steps and then publishes."""
        await self.scheduler.publish(
            BurstOpened(
                burst=self.bursts, first_step=first_step, steps=steps, need_groups=0, carry_groups=0.0, core_stays=core_stays,
                at_s=time.time(),
            )
        )  # fmt: skip
        self.bursts += 1

    async def start_trainer(self, cell: int) -> asyncio.subprocess.Process:
        endpoint = "trainer-0" if cell == 0 else ""
        self.trainers[cell] = await self.start("services.trainer", "--cell", str(cell), endpoint=endpoint)
        return self.trainers[cell]

    async def until_computed(self, count: int) -> None:
        """The core knows of `count` computed micro-steps of the open step."""
        async with open_channel(self.folder.endpoint("trainer-0"), self.service_key) as channel:
            stub = core_pb2_grpc.CoreServiceStub(channel)

            async def are_computed() -> bool:
                return (await stub.GetState(core_pb2.GetStateRequest(), timeout=WAIT_S)).micro_computed >= count

            await self.until(are_computed)

    async def until_no_claims(self) -> None:
        """Every micro-step is acknowledged."""
        js = (await self.bus("trainer")).js

        async def none_left() -> bool:
            return (await js.stream_info("GYRE_MICRO")).state.messages == 0

        await self.until(none_left)

    async def until_asking(self, count: int) -> None:
        """So many cells wait for a micro-step: each is given one of the next `count`."""
        js = (await self.bus("trainer")).js

        async def are_asking() -> bool:
            with contextlib.suppress(NotFoundError):  # nobody has asked yet
                return (await js.consumer_info("GYRE_MICRO", f"{self.config.run.name}-micro")).num_waiting >= count
            return False

        await self.until(are_asking)

    async def role(self, cell: int, target: str) -> None:
        """A whole role change of one cell, with the trainer's own phase awaited."""
        name = f"cell-{cell}"
        change = self.changes[name] = self.changes.get(name, -1) + 1

        async def say(bus, phase: str) -> None:
            await bus.publish(
                RoleChanged(
                    cell=name,
                    change=change,
                    target=target,
                    phase=phase,
                    at_s=time.time(),
                    burst=max(0, self.bursts - 1),
                )
            )

        await say(self.scheduler, "requested")
        if target == "training":
            if serves(self.config.scheduler, cell):
                await say(self.gateway, "drained")
                await say(self.cell, "unloaded")
            await self.until(lambda: self.of(RoleChanged, cell=name, change=change, phase="training"))
        else:
            await self.until(lambda: self.of(RoleChanged, cell=name, change=change, phase="released"))
            await say(self.cell, "loaded")
            await say(self.gateway, "serving")

    async def extend(self, step: int, index: int, micros: list[MicroStep]) -> None:
        for micro in micros:
            await self.trajproc.publish(micro)
        fact = BatchExtended(
            step=step,
            group_id=f"g{index:06d}",
            sample_ids=samples_of(micros),
            micro_ids=[micro.micro_id for micro in micros],
            turns=1,
            turns_total=1,
            at_s=time.time(),
        )
        await self.trajproc.publish(fact)

    async def close(self, step: int, micros: list[MicroStep], samples: list[str] | None = None) -> None:
        samples = samples_of(micros) if samples is None else samples
        fact = BatchClosed(
            step=step,
            cause="turns",
            turns=1,
            turns_target=1,
            groups=[],
            sample_ids=samples,
            micro_ids=[micro.micro_id for micro in micros],
            divisor=len(samples),
            truncated_share=0.0,
            failed_share={},
            no_gradient=not micros,
            staleness_mean=0.0,
            staleness_max=0,
            at_s=time.time(),
        )
        await self.trajproc.publish(fact)


def reference(run: Run, root: Path, steps: list[list[MicroStep]]) -> list[dict[str, torch.Tensor]]:
    """Weights after each step, by one process that sees whole batches."""
    policy = Policy(run.folder.model)
    folder = RunFolder(root)
    folder.make()
    learner = Learner(folder, run.config, policy, SystemClock())
    found = []
    for micros in steps:
        for micro in micros:
            accumulate(policy, micro, run.config.trainer)
        gradient_P = flat_gradient(policy.parameters)
        batch = Batch(tuple(micro.micro_id for micro in micros), tuple(samples_of(micros)), len(samples_of(micros)))
        learner.update(gradient_P, batch, {}, {}, {}, 0.0)
        found.append({name: tensor.clone() for name, tensor in policy.tensors().items()})
    return found


def assert_same(path: str | Path, expected: dict[str, torch.Tensor]) -> None:
    found = safetensors.torch.load_file(path)
    assert found.keys() == expected.keys()
    worst = max((found[name] - tensor).abs().max().item() for name, tensor in expected.items())
    # The order of float32 additions is all that differs; AdamW's first steps divide by gradients, which magnifies it.
    assert worst < 1e-6, worst


async def start_all(run: Run, cells: int) -> None:
    await asyncio.gather(*(run.start_trainer(cell) for cell in range(cells)))
    for cell in range(cells):
        await run.role(cell, "rollout")


async def two_satellites_in_training(run: Run) -> None:
    await start_all(run, 3)
    for cell in (0, 1, 2):
        await run.role(cell, "training")
    await run.until(lambda: run.of(StepOpened, step=0))
    await run.until(lambda: {fact.cell for fact in run.of(StepJoined, step=0)} == {"cell-1", "cell-2"})
    await run.until_asking(3)
