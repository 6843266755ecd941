"""Forward and backward of packed trees against their paths one by one: `python -m benchmarks.tree_training [--json]`.

    time_packed_s, time_flat_s   the same targets and loss: packed, and each path by transformers' own SDPA; medians
    token_ratio                  unique over total tokens
    time_over_token_ratio        time packed over flat, over token_ratio (goal: 1.15): the median over rounds, each flat run being compared with the
                                 mean of the packed runs just before and just after it, so that a machine that slows down meanwhile cancels out
    ratio_low, ratio_high        the quartiles of the same over the rounds
    wall_over_token_ratio        its median by the wall's clock
    flop_ratio                   what the ratio would be if nothing but the necessary multiplications cost time: logits of the targets are the same
                                 for both, and a token deep in a tree attends to more than the mean token of a path
    grad_rel_error               difference of the whole gradients over their norm
    peak_bytes_*                 most bytes that torch held at once beyond weights

Trees: the paper's example (ten candidate paths visit 1716 message nodes, 1347 of them distinct), of which sampling takes J_max = 1, 5 or all;
ten paths that share nine tenths; 16 short branches below one context. On a CPU: a Qwen3 of 3 layers, 384 wide, in float32; times are the
processor's: waiting for other work on the machine is in none of them, only what that does to caches. On a GPU: a Qwen3 shaped as the 0.6B one, in
bf16, up to 32k tokens in a row, the wall's times, and the card's name. Progress goes to stderr.
"""

import argparse
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from gyre import ids
from gyre import records as r
from gyre.config import TrainerConfig
from services.trainer.losses import policy_loss
from services.trainer.losses.targets import Targets
from services.trainer.model import Policy
from services.trainer.optimizer import flat_gradient
from services.trainer.packed.flat import paths_of
from services.trainer.packed.forest import Forest, forest_of
from services.trajproc.core.rows import make_rows
from services.trajproc.core.sampling import choose_paths
from services.trajproc.core.tree import build_tree

SAMPLE = "g000000-e0-a1"
GOAL = 1.15
CASE_S = 22.0
"""Of turns for each case, in which the small ones have more rounds."""
ROUNDS = (7, 25)
"""Fewest and most rounds of a case."""
SIZES = {
    "cpu": {"message_tokens": 4, "model": {
        "vocab_size": 1024, "hidden_size": 384, "intermediate_size": 1152, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 64,
    }},
    "cuda": {"message_tokens": 24, "model": {
        "vocab_size": 151_936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 128,
    }},
}  # fmt: skip
PAPER_NODES_TOTAL, PAPER_NODES_DISTINCT, PAPER_PATHS = 1716, 1347, 10


class Tree:
    """Calls of one execution whose messages are `size` tokens each, prompts and replies in turn."""

    def __init__(self, vocabulary: int, size: int) -> None:
        self.calls: list[r.CallRecorded] = []
        self._rng, self._vocabulary, self._size = np.random.default_rng(0), vocabulary, size

    def path(self, messages: int, parent: int = -1, shared: int = 0) -> list[int]:
        """A path of so many messages, the first `shared` (even) of them those of call `parent`'s context; its calls."""
        made = []
        for message in range(shared, messages, 2):
            made.append(self._call(parent, message * self._size, min(2, messages - message)))
            parent = made[-1]
        return made

    def _call(self, parent: int, cut: int, messages: int) -> int:
        index, size = len(self.calls), self._size
        prompt, output = self._tokens(size), self._tokens(size * (messages - 1) or 1)
        self.calls.append(r.CallRecorded(
            call_id=ids.call_id(SAMPLE, index), execution_id="g000000-e0", group_id="g000000", attempt=1, call_index=index,
            purpose="train", parent="" if parent < 0 else ids.call_id(SAMPLE, parent), parent_tokens=cut,
            prompt_delta=r.pack(prompt, "int32"), prompt_tokens=cut + size, output_ids=r.pack(output, "int32"),
            logprobs=r.pack(np.full(len(output), -np.log(self._vocabulary)), "float32"),
            versions=r.pack(np.zeros(len(output)), "int32"),
            sampling=r.Sampling(temperature=1.0, top_p=1.0, max_tokens=size, seed=1), finish_reason="stop", role="main", delivered=True,
        ))  # fmt: skip
        return index

    def _tokens(self, count: int) -> np.ndarray:
        return self._rng.integers(0, self._vocabulary, count)


def paper_tree(vocabulary: int, size: int) -> Tree:
    """Ten paths, 1716 nodes visited, 1347 distinct: nine paths leave the first after 41 nodes on average."""
    tree, rng = Tree(vocabulary, size), np.random.default_rng(1)
    lengths = [172] * 6 + [171] * 4
    to_share = PAPER_NODES_TOTAL - PAPER_NODES_DISTINCT
    trunk = tree.path(lengths[0])
    shared = 2 * (rng.dirichlet(np.full(PAPER_PATHS - 1, 2.0)) * (to_share - 9) / 2).astype(int)
    shared[: (to_share - shared.sum()) // 2] += 2
    for length, common in zip(lengths[1:], shared.tolist(), strict=True):
        tree.path(length, trunk[common // 2 - 1] if common else -1, common)
    return tree


def cases(vocabulary: int, size: int) -> dict[str, tuple[Tree, int]]:
    """Name → (tree, J_max)."""
    paper, deep, brush = paper_tree(vocabulary, size), Tree(vocabulary, size), Tree(vocabulary, size)
    trunk = deep.path(172)
    for _ in range(9):
        deep.path(172, trunk[154 // 2 - 1], 154)
    trunk = brush.path(160)
    for _ in range(16):
        brush.path(166, trunk[-1], 160)
    return {
        "paper_j1": (paper, 1), "paper_j5": (paper, 5), "paper_all": (paper, 99), "deep_all": (deep, 99), "brush_all": (brush, 99),
    }  # fmt: skip


def make_policies(model: dict[str, int], device: str, dtype: torch.dtype) -> tuple[Policy, Policy]:
    """Packed, and path by path."""
    with tempfile.TemporaryDirectory() as name:
        torch.manual_seed(0)
        config = Qwen3Config(**model, max_position_embeddings=65_536, tie_word_embeddings=True)
        AutoModelForCausalLM.from_config(config).save_pretrained(name)
        (Path(name) / "tokenizer.json").write_text("{}")
        packed, flat = Policy(Path(name), device, dtype), Policy(Path(name), device, dtype)
    assert not packed.not_packed, packed.not_packed
    flat.not_packed = "to compare"
    flat.model.set_attn_implementation("sdpa")
    return packed, flat


class Spent(NamedTuple):
    """Seconds of one run, or of several (arrays [rounds])."""

    own: Any
    """By the clock that counts (`_now_s`)."""
    wall: Any


def take_turns(packed: Callable[[], Spent], flat: Callable[[], Spent], count: int) -> tuple[Spent, Spent]:
    """(packed [count], flat [count]): packed, flat, packed, flat, …, packed; a packed time is the mean of the runs beside the flat one."""
    around, between = [packed()], []
    for _ in range(count):
        between.append(flat())
        around.append(packed())
    of_packed, of_flat = (Spent(*map(np.array, zip(*runs, strict=True))) for runs in (around, between))
    return Spent(*((times[1:] + times[:-1]) / 2 for times in of_packed)), of_flat


def measure(name: str, tree: Tree, paths_max: int, policies: tuple[Policy, Policy], count: int = 0) -> dict[str, Any]:
    """`count` rounds; 0: as many as fit CASE_S."""
    grown = build_tree(tree.calls)
    paths = choose_paths(grown, SAMPLE, paths_max)
    rows = make_rows(grown, paths, SAMPLE, np.ones(len(grown.calls)), 10**9)
    forest = forest_of(rows)
    total = sum(int(grown.starts[path.leaf] + grown.lengths[path.leaf]) for path in paths)
    targets = _targets(rows[0], forest, policies[0].device)
    device = policies[0].device
    work = [lambda policy=policy: _step(policy, forest, targets) for policy in policies]
    _say(f"{name}: {forest.tokens} of {total} tokens; memory and gradients")
    peaks = [_peak_bytes(device, run) for run in work]
    found, expected = (flat_gradient(policy.parameters).double() for policy in policies)
    timed = [lambda run=run: _timed(run, _now_s(device)) for run in work]
    count = count or int(np.clip(CASE_S / sum(run().own for run in timed), *ROUNDS))
    _say(f"{name}: {count} rounds")
    packed, flat = take_turns(timed[0], timed[1], count)
    token_ratio = forest.tokens / total
    overs = packed.own / flat.own / token_ratio
    low, over, high = np.quantile(overs, [0.25, 0.5, 0.75]).tolist()
    _say(f"{name}: {' '.join(f'{value:.3f}' for value in overs)}")
    time_packed_s, time_flat_s = float(np.median(packed.own)), float(np.median(flat.own))
    return {
        "name": name, "paths": len(paths), "tokens_total": total, "tokens_unique": forest.tokens, "targets": len(forest.targets_N),
        "time_packed_s": time_packed_s, "time_flat_s": time_flat_s, "token_ratio": token_ratio, "time_over_token_ratio": over,
        "ratio_low": low, "ratio_high": high, "wall_over_token_ratio": float(np.median(packed.wall / flat.wall)) / token_ratio,
        "rounds": count, "flop_ratio": _flops(policies[0], forest) / _flops(policies[1], forest),
        "tokens_per_s": forest.tokens / time_packed_s, "grad_rel_error": float((found - expected).norm() / expected.norm()),
        "peak_bytes_packed": peaks[0], "peak_bytes_flat": peaks[1],
    }  # fmt: skip


def _timed(run: Callable[[], None], now_s: Callable[[], float]) -> Spent:
    gc.collect()  # not in the middle of what is timed
    wall_s, start_s = time.perf_counter(), now_s()
    run()
    return Spent(now_s() - start_s, time.perf_counter() - wall_s)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _flops(policy: Policy, forest: Forest) -> float:
    """Multiplications and additions of forward and backward: 6 a weight and token, 14 a layer, head dimension and pair (two products forward, five
    backward, the scores being made again)."""
    config, head = policy.model.config, policy.model.get_output_embeddings().weight.numel()
    body = sum(parameter.numel() for parameter in policy.parameters) - head
    paths = [np.arange(forest.tokens)] if not policy.not_packed else [path for path, _ in paths_of(forest)]
    pairs = sum(float((forest.positions_T[path] + 1).sum()) for path in paths)
    width = config.num_hidden_layers * config.num_attention_heads * config.head_dim
    return 6.0 * (body * sum(map(len, paths)) + head * len(forest.targets_N)) + 14.0 * width * pairs


def _step(policy: Policy, forest: Forest, targets: Targets) -> None:
    policy.model.zero_grad(set_to_none=True)
    loss, _ = policy_loss(
        policy.target_logprobs(forest), targets, TrainerConfig(objective="policy_gradient", corrections=[])
    )
    loss.backward()
    if policy.device.type == "cuda":
        torch.cuda.synchronize()


def _targets(row: r.Row, forest: Forest, device: torch.device) -> Targets:
    behaviour_N = torch.from_numpy(r.array(row.logprobs, "float32").copy()).to(device)
    calls, sequences_N = np.unique(r.array(row.sequences, "int32")[forest.targets_N], return_inverse=True)
    return Targets(
        behaviour_N, torch.ones_like(behaviour_N), torch.from_numpy(sequences_N).to(device),
        torch.zeros(len(behaviour_N), dtype=torch.long, device=device),
        torch.zeros(len(calls), dtype=torch.long, device=device), 1,
    )  # fmt: skip


def _now_s(device: torch.device) -> Callable[[], float]:
    """The processor's time where it computes; the wall's where a card does."""
    return time.perf_counter if device.type == "cuda" else time.process_time


def _peak_bytes(device: torch.device, run: Callable[[], None]) -> int:
    """Most bytes held above what is there between two runs."""
    if device.type == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        return torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    changes = [event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    return int(np.maximum.accumulate(np.cumsum(changes))[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    parser.add_argument("--rounds", type=int, default=0, help=f"of each case; 0: about {CASE_S:g} s of them")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="names of cases, separated by commas")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size, dtype = SIZES[device], torch.bfloat16 if device == "cuda" else torch.float32
    policies = make_policies(size["model"], device, dtype)
    found = [
        measure(name, tree, paths_max, policies, options.rounds)
        for name, (tree, paths_max) in cases(size["model"]["vocab_size"], size["message_tokens"]).items()
        if not options.only or name in options.only.split(",")
    ]
    about = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "dtype": str(dtype).removeprefix("torch."),
    }
    if options.json:
        print(json.dumps(about | {"goal": GOAL, "cases": found}))
        return
    print(f"{about['device']}, {about['dtype']}; goal: at most {GOAL} times the token ratio")
    for case in found:
        limit = case["flop_ratio"] / case["token_ratio"]
        print(
            f"{case['name']:10} {case['tokens_unique']:6} of {case['tokens_total']:6} tokens, {case['time_packed_s']:.2f} of "
            f"{case['time_flat_s']:.2f} s: {case['time_over_token_ratio']:.3f} times the token ratio {case['token_ratio']:.3f} "
            f"({case['ratio_low']:.3f} to {case['ratio_high']:.3f} in {case['rounds']} rounds; {case['wall_over_token_ratio']:.3f} by the wall; "
            f"multiplications alone {limit:.2f}); {case['tokens_per_s']:.0f} unique tokens/s; {case['peak_bytes_packed'] / 2**20:.0f} of "
            f"{case['peak_bytes_flat'] / 2**20:.0f} MiB; gradients differ by {case['grad_rel_error']:.1e}"
        )


if __name__ == "__main__":
    main()
