"""What a sample's model saw and said, token by token: its stored tree as text, with what the trainer made of each token.

Trees are the trajectory processor's to read, so a child process of it does (as for `gyre tree`); ids become text by the run's tokenizer.json.

`Trees.tokens` answers

    sample_id, calls, leaves, set_aside      as `gyre tree --json`
    nodes    [{node, parent, start, tokens, call, role, chosen, texts, …}]     where sampled also versions, logprobs, and where the trainer's
             words are on record trained_logprobs, clipped, kept
    tokens_left_out     of nodes that were cut to stay below TOKENS_MAX
"""

import asyncio
import json
import re
import sys
from collections import OrderedDict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from gyre.errors import GyreError, NotFound, Unavailable
from gyre.run_folder import RunFolder
from gyre.token_log import CLIPPED, KEPT, TokensSeen, tokens_of

TOKENS_MAX = 60_000
"""Of one page; a tree beyond it is cut node by node, prompts first."""
NODE_TOKENS_MAX = 6_000
ANSWER_S = 60.0
_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]*")
TREES_KEPT = 64
"""Trees that are kept decoded: a trained sample's does not change any more."""


class Trees:
    """Trees of one run as text. Not for several event loops."""

    def __init__(self, folder: RunFolder, model: str) -> None:
        """`model`: configured folder of the policy; where it has no tokenizer, the run's own."""
        self._folder = folder
        self._model = model
        self._kept: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._one_at_a_time = asyncio.Semaphore(2)

    @cached_property
    def _tokenizer(self) -> Tokenizer | None:
        for folder in (Path(self._model), self._folder.model):
            if self._model and (folder / "tokenizer.json").is_file():
                return Tokenizer.from_file(str(folder / "tokenizer.json"))
        return None

    async def tokens(self, sample_id: str) -> dict[str, Any]:
        """The answer whose shape the module's docstring gives. Raises NotFound where no tree is kept, Unavailable."""
        if sample_id not in self._kept:
            async with self._one_at_a_time:
                found = await self._read(sample_id)
            told = await asyncio.to_thread(self._told, found)
            if not any("trained_logprobs" in node for node in told["nodes"]):
                return told  # the trainer's word may be yet to come
            self._kept[sample_id] = told
            if len(self._kept) > TREES_KEPT:
                self._kept.popitem(last=False)
        return self._kept[sample_id]

    async def _read(self, sample_id: str) -> dict[str, Any]:
        if not _NAME.fullmatch(sample_id):
            raise NotFound(f"no tree of {sample_id[:100]}")
        command = [
            sys.executable,
            "-m",
            "services.trajproc",
            "--run",
            str(self._folder.root),
            "--log-level",
            "CRITICAL",
        ]
        child = await asyncio.create_subprocess_exec(
            *command,
            "--print=tokens",
            f"--name={sample_id}",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(ANSWER_S):
                out, err = await child.communicate()
        except TimeoutError as error:
            raise Unavailable(f"the tree of {sample_id} was not read within {ANSWER_S:g} s") from error
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode != 0:
            words = (err.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1].removeprefix(
                "trajproc: "
            )
            raise (NotFound if child.returncode == 2 else GyreError)(words)
        return json.loads(out)

    def _told(self, found: dict[str, Any]) -> dict[str, Any]:
        seen = tokens_of(self._folder.tokens, found["sample_id"])
        if seen is not None:
            with_trained(found["nodes"], seen)
        left = TOKENS_MAX
        left_out = 0
        for node in found["nodes"]:
            ids = node.pop("ids")
            shown = ids[: min(NODE_TOKENS_MAX, max(left, 0))]
            left -= len(shown)
            left_out += len(ids) - len(shown)
            node["left_out"] = len(ids) - len(shown)
            node["texts"] = pieces(shown, self._tokenizer) if node["call"] >= 0 else [text_of(shown, self._tokenizer)]
            for name in ("logprobs", "token_versions", "trained_logprobs", "kept", "clipped"):
                if name in node:
                    node[name] = node[name][: len(shown)]
        found["tokens_left_out"] = left_out
        return found


def with_trained(nodes: list[dict[str, Any]], seen: TokensSeen) -> None:
    """Gives the nodes of each call that was trained what the trainer made of their tokens. A call's targets are its sampled tokens on chosen paths,
    in their order; where their number is another, nothing is said of it."""
    logprobs, flags = np.frombuffer(seen.logprobs, "<f4"), np.frombuffer(seen.flags, "u1")
    begin = 0
    for call, count in zip(
        np.frombuffer(seen.calls, "<i4").tolist(), np.frombuffer(seen.counts, "<i4").tolist(), strict=True
    ):
        own = [node for node in nodes if node["call"] == call and node["chosen"]]
        at = begin
        begin += count
        if sum(node["tokens"] for node in own) != count:
            continue
        for node in own:
            part = slice(at, at + node["tokens"])
            node["trained_logprobs"] = [
                value if np.isfinite(value) else None for value in logprobs[part].round(5).tolist()
            ]
            node["kept"] = (flags[part] & KEPT > 0).tolist()
            node["clipped"] = (flags[part] & CLIPPED > 0).tolist()
            at += node["tokens"]


def text_of(ids: list[int], tokenizer: Tokenizer | None) -> str:
    if tokenizer is None:
        return " ".join(map(str, ids))
    return tokenizer.decode(ids, skip_special_tokens=False)


def pieces(ids: list[int], tokenizer: Tokenizer | None) -> list[str]:
    """Text of each token, so that they join to the whole: what a token adds to the text before it. A character that several tokens make is the
    last one's."""
    if tokenizer is None:
        return [f"{one} " for one in ids]
    texts, done, begin = [], "", 0
    for index in range(len(ids)):
        whole = tokenizer.decode(ids[begin : index + 1], skip_special_tokens=False)
        if whole.endswith("\ufffd") and index + 1 < len(ids):
            texts.append("")
            continue
        texts.append(whole[len(done) :])
        # a short window keeps this linear; one token of context is kept for decoders that look back
        begin, done = index, tokenizer.decode([ids[index]], skip_special_tokens=False)
    return texts
