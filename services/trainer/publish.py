"""Publishing weights: a safetensors file on storage that cells share, the same file as the checkpoint's where a link can be made (A4)."""

import os
import shutil
from pathlib import Path

from gyre.records import WeightsPublished
from services.trainer.checkpoint import Checkpoint, digest_of, name_of, sync_and_digest, sync_folder

KEPT_MIN = 3
"""Published versions that stay whatever the configuration says: the newest, one that a cell is about to load, and the last that it loaded well."""


def publish_file(checkpoint: Checkpoint, weights: Path, at_s: float) -> WeightsPublished:
    """Put `weights/v000012.safetensors` in place, whole or not at all; returns the fact that tells of it."""
    weights.mkdir(parents=True, exist_ok=True)
    final = weights / f"{name_of(checkpoint.version)}.safetensors"
    digest = checkpoint.weights_digest
    if not final.exists() or digest_of(final) != digest:
        temporary = final.with_suffix(".new")
        temporary.unlink(missing_ok=True)
        try:
            os.link(checkpoint.weights, temporary)
        except OSError:  # another file system
            shutil.copyfile(checkpoint.weights, temporary)
        sync_and_digest(temporary)
        os.replace(temporary, final)
        sync_folder(weights)
    return WeightsPublished(
        version=checkpoint.version, path=str(final), checksum=digest, bytes=final.stat().st_size, at_s=at_s
    )


def prune_published(weights: Path, kept: int) -> None:
    """Keep the newest `kept` published files, KEPT_MIN at least: a cell that missed versions takes the newest, nobody asks for older ones."""
    for path in sorted(weights.glob("v*.safetensors"), reverse=True)[max(kept, KEPT_MIN) :]:
        path.unlink(missing_ok=True)
