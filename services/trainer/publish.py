"""Publishing weights: a safetensors file on storage that cells share, the same file as the checkpoint's where a link can be made (A4)."""

import os
import shutil
from pathlib import Path

from gyre.records import WeightsPublished
from services.trainer.checkpoint import Checkpoint, digest_of, name_of, sync_and_digest, sync_folder


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
