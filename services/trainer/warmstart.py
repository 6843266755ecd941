"""Supervised warm start of a causal language model on demonstrations (D12).

    JSON lines of messages and tools ──template──▶ token ids + target mask ──▶ batches of similar length ──▶ AdamW
                                                                                                              │
                                                          model directory, written whole or not at all ◀──────┘

Works on any Hugging Face directory with a tokenizer and a chat template. Only what the assistant says is a target: its
text, its tool calls and the token that ends its turn. `python -m services.trainer.warmstart --model IN --data FILE --out OUT`
"""

import argparse
import json
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

IGNORED = -100
"""Label of a token that is no target (torch's cross-entropy convention)."""


class WarmStartError(ValueError):
    """The model directory or the data cannot be used; the text says what is missing."""


@dataclass(frozen=True)
class Settings:
    epochs: float = 2.0
    lr_peak: float = 5e-3
    """For a tiny, randomly initialised model; a pretrained one wants 1e-5 to 5e-5."""
    lr_end_share: float = 0.05
    """The cosine ends at this share of the peak."""
    warmup_share: float = 0.05
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    grad_norm_max: float = 1.0
    tokens_per_batch: int = 1536
    """Tokens in one optimizer step, padding included. Small: a tiny model gains more from many steps than from clean ones."""
    seconds_max: float = math.inf
    """Stops early when over; the schedule is planned by epochs, so that an uncut run is the same on every machine."""
    seed: int = 0


@dataclass(frozen=True)
class Row:
    """One demonstration: `ids[i]` is trained to be predicted where `targets[i]`."""

    ids: list[int]
    targets: list[bool]


@dataclass(frozen=True)
class Progress:
    step: int
    steps: int
    loss: float
    """Mean over the step's target tokens, in nats."""
    tokens: int
    """Real tokens so far, padding not counted."""
    seconds: float


def load_tokenizer(directory: str) -> PreTrainedTokenizerBase:
    """Raises WarmStartError where the directory has no tokenizer, chat template or end-of-turn token."""
    if not any(os.path.exists(os.path.join(directory, f)) for f in ("tokenizer.json", "tokenizer_config.json")):
        raise WarmStartError(f"{directory} has no tokenizer (tokenizer.json); a warm start needs the model's own")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    if not tokenizer.chat_template:
        raise WarmStartError(f"the tokenizer in {directory} has no chat template")
    if tokenizer.eos_token is None:
        raise WarmStartError(f"the tokenizer in {directory} has no end-of-turn token (eos_token)")
    return tokenizer


def render(tokenizer: PreTrainedTokenizerBase, messages: list[dict], tools: list[dict] | None = None) -> Row:
    """Token ids of a whole conversation, and which of them the assistant has to produce.

    An assistant turn runs from where the template would let it begin to its end-of-turn token. Raises WarmStartError where the
    template renders a history differently once more messages follow, since then there is no such place.
    """
    text = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False)
    spans = []
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = tokenizer.apply_chat_template(
            messages[:index], tools=tools, tokenize=False, add_generation_prompt=True
        )
        if not text.startswith(prompt):
            raise WarmStartError(f"the chat template does not render message {index} as a continuation of those before")
        end = text.find(tokenizer.eos_token, len(prompt))
        spans.append((len(prompt), len(text) if end < 0 else end + len(tokenizer.eos_token)))
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    targets, at = [], 0
    for start, end in encoded["offset_mapping"]:
        while at < len(spans) and start >= spans[at][1]:
            at += 1
        targets.append(at < len(spans) and start >= spans[at][0] and end <= spans[at][1])
    return Row(encoded["input_ids"], targets)


def recorded(ids: list[int], targets: list[int], vocabulary: int) -> Row:
    """Tokens of an execution as they were sampled, of the same tokenizer (`gyre export --what demonstrations`). Raises ValueError."""
    if len(ids) != len(targets) or not any(targets):
        raise ValueError(f"{len(ids)} ids and {len(targets)} targets, of which {sum(map(bool, targets))} are one")
    if strange := [one for one in ids if not isinstance(one, int) or not 0 <= one < vocabulary]:
        raise ValueError(f"token {strange[0]!r} is none of the {vocabulary} of this tokenizer")
    return Row(ids, [bool(one) for one in targets])


def load_rows(tokenizer: PreTrainedTokenizerBase, path: str) -> list[Row]:
    """Raises WarmStartError, naming the line, for one that is neither {"messages": [...], "tools": [...]} nor {"ids": [...], "targets": [...]}."""
    rows = []
    with open(path) as lines:
        for number, line in enumerate(lines, 1):
            try:
                example: dict[str, Any] = json.loads(line)
                if "ids" in example:
                    rows.append(recorded(example["ids"], example["targets"], len(tokenizer)))
                else:
                    rows.append(render(tokenizer, example["messages"], example.get("tools")))
            except (ValueError, KeyError, TypeError) as error:
                raise WarmStartError(f"{path}:{number}: {error}") from error
    if not rows:
        raise WarmStartError(f"{path} holds no demonstrations")
    return rows


def batches(lengths: list[int], tokens_per_batch: int, rng: Random) -> list[list[int]]:
    """Row indices in batches of similar length, each at most `tokens_per_batch` tokens with its padding.

    Every row is in exactly one batch; a row longer than the budget is a batch of its own. Batches come in random order, and
    rows of the same length are mixed anew each time.
    """
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i] // 16, rng.random()))
    found: list[list[int]] = []
    for index in order:
        last = found[-1] if found else []
        if last and max(lengths[index], *(lengths[i] for i in last)) * (len(last) + 1) <= tokens_per_batch:
            last.append(index)
        else:
            found.append([index])
    rng.shuffle(found)
    return found


def lr_share(step: int, steps: int, settings: Settings) -> float:
    """Share of the peak step size at `step` (from 0): linear warm-up, then a cosine."""
    warmup = max(1, round(settings.warmup_share * steps))
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return settings.lr_end_share + (1 - settings.lr_end_share) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))


def train(
    model: torch.nn.Module, rows: list[Row], settings: Settings, clock: Callable[[], float] = time.monotonic
) -> Iterator[Progress]:
    """Train in place, one optimizer step for each item. Deterministic in the seed unless `seconds_max` cuts it short."""
    rng, started_s = Random(settings.seed), clock()
    torch.manual_seed(settings.seed)
    lengths = [len(row.ids) for row in rows]
    plan: list[list[int]] = []
    for epoch in range(math.ceil(settings.epochs)):
        some = batches(lengths, settings.tokens_per_batch, rng)
        plan += some[: round(len(some) * min(1.0, settings.epochs - epoch))]
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.lr_peak, betas=settings.betas, weight_decay=settings.weight_decay
    )
    model.train()
    tokens = 0
    for step, batch in enumerate(plan):
        ids_BT, labels_BT = _padded([rows[i] for i in batch])
        # Rows are padded on the right and attention is causal: no target can see padding, so no mask is needed.
        loss = _loss(model, ids_BT, labels_BT)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.grad_norm_max)
        for group in optimizer.param_groups:
            group["lr"] = settings.lr_peak * lr_share(step, len(plan), settings)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        tokens += sum(lengths[i] for i in batch)
        yield Progress(step + 1, len(plan), loss.item(), tokens, clock() - started_s)
        if clock() - started_s > settings.seconds_max:
            return


def _loss(model: torch.nn.Module, ids_BT: torch.Tensor, labels_BT: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over the targets; logits are computed for those positions alone, a fifth of all or less."""
    hidden_BTD = model.base_model(input_ids=ids_BT, use_cache=False).last_hidden_state
    labels_BT = labels_BT[:, 1:]
    is_target = labels_BT != IGNORED
    logits_NV = model.get_output_embeddings()(hidden_BTD[:, :-1][is_target]).float()
    return torch.nn.functional.cross_entropy(logits_NV, labels_BT[is_target])


def _padded(rows: list[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids_BT, labels_BT), padded on the right; labels are IGNORED where a token is no target."""
    longest = max(len(row.ids) for row in rows)
    ids_BT = torch.zeros(len(rows), longest, dtype=torch.long)
    labels_BT = torch.full((len(rows), longest), IGNORED)
    for index, row in enumerate(rows):
        ids = torch.tensor(row.ids)
        ids_BT[index, : len(ids)] = ids
        labels_BT[index, : len(ids)] = torch.where(torch.tensor(row.targets), ids, IGNORED)
    return ids_BT, labels_BT


def save(model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase, out: str) -> None:
    """Write a Hugging Face directory beside its final place and rename it; raises FileExistsError if `out` is there."""
    if os.path.exists(out):
        raise FileExistsError(f"{out} exists")
    parent = os.path.dirname(os.path.abspath(out))
    os.makedirs(parent, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=".warmstart-", dir=parent)
    try:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        os.chmod(temporary, 0o755)
        os.rename(temporary, out)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def warm_start(
    model_in: str, data: str, out: str, settings: Settings, report: Callable[[Progress], None] = lambda progress: None
) -> Progress:
    """The whole of it; `report` is called after each step. Raises WarmStartError, FileExistsError."""
    if os.path.exists(out):
        raise FileExistsError(f"{out} exists")
    tokenizer = load_tokenizer(model_in)
    model = AutoModelForCausalLM.from_pretrained(model_in, dtype=torch.float32)
    rows = load_rows(tokenizer, data)
    progress = None
    for progress in train(model, rows, settings):
        report(progress)
    if progress is None:
        raise WarmStartError(f"{settings.epochs} epochs of {len(rows)} demonstrations make no optimizer step")
    save(model, tokenizer, out)
    return progress


def main() -> None:
    parser = argparse.ArgumentParser(description="Supervised warm start on demonstrations.")
    parser.add_argument("--model", required=True, help="directory to start from")
    parser.add_argument("--data", required=True, help='JSON lines of {"messages": [...], "tools": [...]}')
    parser.add_argument("--out", required=True, help="directory to write; must not exist")
    parser.add_argument("--epochs", type=float, default=Settings.epochs)
    parser.add_argument("--lr", type=float, default=Settings.lr_peak)
    parser.add_argument("--tokens-per-batch", type=int, default=Settings.tokens_per_batch)
    parser.add_argument("--seconds-max", type=float, default=Settings.seconds_max)
    parser.add_argument("--seed", type=int, default=Settings.seed)
    parser.add_argument("--threads", type=int, default=0, help="torch threads; 0 leaves torch's default")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    settings = Settings(
        epochs=options.epochs, lr_peak=options.lr, tokens_per_batch=options.tokens_per_batch,
        seconds_max=options.seconds_max, seed=options.seed,
    )  # fmt: skip

    def show(progress: Progress) -> None:
        if progress.step % 20 == 0 or progress.step == progress.steps:
            rate = progress.tokens / max(progress.seconds, 1e-9)
            print(f"step {progress.step}/{progress.steps} loss {progress.loss:.4f} {rate:.0f} tokens/s", flush=True)

    try:
        last = warm_start(options.model, options.data, options.out, settings, show)
    except (WarmStartError, FileExistsError) as error:
        raise SystemExit(f"warm start: {error}") from error
    cut = "" if last.step == last.steps else f", cut short after {last.step} of {last.steps} steps"
    print(f"wrote {options.out} after {last.seconds:.1f} s{cut}")


if __name__ == "__main__":
    main()
