"""Sizes of the tiny models, a recorder of one call's chunks, and the reference to hold log-probabilities against."""

import threading
from dataclasses import dataclass, field

import torch

from services.rollout.engine import Chunk, Engine, FinishReason, GenerateRequest, SamplingParams

VOCAB = 160
SIZES = {
    "vocab_size": VOCAB, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 1024, "initializer_range": 0.25,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
"""`initializer_range` well above the usual 0.02: else a random model answers nearly uniformly whatever the context, and a
wrong mask or position would not show."""


@dataclass
class Recorder:
    """Collects one call's chunks; `done` when the last one came."""

    chunks: list[Chunk] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)
    first: threading.Event = field(default_factory=threading.Event)

    def __call__(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        if chunk.token_ids:
            self.first.set()
        if chunk.finish_reason is not None:
            self.done.set()

    def joined(self, field_name: str) -> list:
        return [item for chunk in self.chunks for item in getattr(chunk, field_name)]

    @property
    def ids(self) -> list[int]:
        return self.joined("token_ids")

    @property
    def finish(self) -> FinishReason | None:
        return self.chunks[-1].finish_reason

    def wait(self) -> "Recorder":
        assert self.done.wait(30), "the call did not finish"
        return self


def start(
    engine: Engine, call_id: str, prompt: list[int], *, session: str | None = None, resume=(), chunk_tokens=1, **params
):
    recorder = Recorder()
    request = GenerateRequest(
        call_id, session or call_id, prompt, SamplingParams(**params), list(resume), chunk_tokens=chunk_tokens
    )
    engine.submit(request, recorder)
    return recorder


def reference_logprobs(model, prompt: list[int], output: list[int], temperature: float = 1.0) -> torch.Tensor:
    """Log-probability of each output token by one plain forward of prompt + output."""
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + output])).logits[0, len(prompt) - 1 : -1]
    return (logits / temperature).log_softmax(-1)[range(len(output)), output]
