"""Keys of the gRPC services: one for the services themselves, one for environments, which may only attach.

Made on first start, readable by their owner only; sent as `authorization: Bearer …`.
"""

import hmac
from pathlib import Path

from gyre import key_files

ROLES = ("service", "environment")

ENVIRONMENT_METHODS = "/gyre.api.rollout.v1.EnvironmentService/"
"""All that the environment key opens."""

OPEN_METHODS = ("/grpc.health.v1.Health/", "/grpc.reflection.")
"""Answered without a key."""


def key_path(keys: Path, role: str) -> Path:
    return keys / f"grpc-{role}.key"


def make_rpc_keys(keys: Path) -> None:
    """Make what is missing; an existing key is kept. Raises ConfigError."""
    for role in ROLES:
        key_files.keep(key_path(keys, role))


def read_key(keys: Path, role: str) -> str:
    """Raises NotFound, ConfigError."""
    return key_files.read(key_path(keys, role)).decode().strip()


def is_allowed(method: str, authorization: str, keys: dict[str, str]) -> bool:
    """Whether the bearer of `authorization` may call `method`. `keys` is role → key; no keys means an open server (tests)."""
    if not keys or method.startswith(OPEN_METHODS):
        return True
    said = authorization.removeprefix("Bearer ").encode()
    if _is(said, keys["service"]):
        return True
    return method.startswith(ENVIRONMENT_METHODS) and _is(said, keys["environment"])


def _is(said: bytes, key: str) -> bool:
    """An empty key is nobody's: a caller who says nothing would have it."""
    return bool(key) and hmac.compare_digest(said, key.encode())
