"""Keys of the gRPC services: one for the services themselves, one for environments, which may only attach.

Made on first start, readable by their owner only; sent as `authorization: Bearer …`.
"""

import hmac
import os
import secrets
from pathlib import Path

ROLES = ("service", "environment")

ENVIRONMENT_METHODS = "/gyre.api.rollout.v1.EnvironmentService/"
"""All that the environment key opens."""

OPEN_METHODS = ("/grpc.health.v1.Health/", "/grpc.reflection.")
"""Answered without a key."""


def key_path(keys: Path, role: str) -> Path:
    return keys / f"grpc-{role}.key"


def make_rpc_keys(keys: Path) -> None:
    """Make what is missing; an existing key is kept."""
    keys.mkdir(parents=True, exist_ok=True)
    for role in ROLES:
        path = key_path(keys, role)
        if not path.exists():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_urlsafe(32))


def read_key(keys: Path, role: str) -> str:
    return key_path(keys, role).read_text().strip()


def is_allowed(method: str, authorization: str, keys: dict[str, str]) -> bool:
    """Whether the bearer of `authorization` may call `method`. `keys` is role → key; no keys means an open server (tests)."""
    if not keys or method.startswith(OPEN_METHODS):
        return True
    said = authorization.removeprefix("Bearer ").encode()
    if hmac.compare_digest(said, keys["service"].encode()):
        return True
    return method.startswith(ENVIRONMENT_METHODS) and hmac.compare_digest(said, keys["environment"].encode())
