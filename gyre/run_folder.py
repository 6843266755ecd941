"""The folder of one run: everything it writes, and how its processes find each other.

config.toml        resolved configuration           keys/          NATS and gRPC keys (owner only)
endpoints.json     name → host:port                 nats/          JetStream's files
clock.json         what its times are counted from (gyre.clock)
logs/<process>.log                                  blobs/         payloads too large for the bus
weights/           published versions               checkpoints/   trainer state
reduce/            meeting points of gradient groups   snapshots/     states of folds, now and then
ledger.db          books, evidence, traces          model/         the policy before reinforcement learning
elite/             rows of executions that are worth training again
trees/             what was sampled in which context, sample by sample
begun/             micro-steps in hand, and of which ones training processes died
tokens/            what the trainer made of each target token, a file a training cell
"""

import fcntl
import json
import os
from pathlib import Path
from typing import TextIO

from gyre.config import Config, load_resolved
from gyre.errors import ConfigError, Conflict, NotFound


class RunFolder:
    """Paths and addresses of a run."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.config_file = self.root / "config.toml"
        self.keys = self.root / "keys"
        self.logs = self.root / "logs"
        self.nats = self.root / "nats"
        self.blobs = self.root / "blobs"
        self.weights = self.root / "weights"
        self.checkpoints = self.root / "checkpoints"
        self.snapshots = self.root / "snapshots"
        self.reduce = self.root / "reduce"
        self.begun = self.root / "begun"
        self.model = self.root / "model"
        self.trees = self.root / "trees"
        self.elite = self.root / "elite"
        self.tokens = self.root / "tokens"
        self.database = self.root / "ledger.db"

    def make(self) -> None:
        """Create what is missing."""
        for folder in (self.root, self.keys, self.logs, self.weights, self.checkpoints):
            folder.mkdir(parents=True, exist_ok=True)
        self.keys.chmod(0o700)

    def config(self) -> tuple[Config, str]:
        """The stored resolved configuration and its fingerprint. Raises NotFound."""
        if not self.config_file.exists():
            raise NotFound(f"{self.root} is no run folder: it has no config.toml")
        return load_resolved(self.config_file)

    def write_endpoints(self, endpoints: dict[str, str]) -> None:
        temporary = self.root / "endpoints.json.new"
        temporary.write_text(json.dumps(endpoints, indent=1))
        os.replace(temporary, self.root / "endpoints.json")

    def endpoint(self, name: str) -> str:
        """host:port of `bus`, `scheduler`, `rollout`, `trajproc`, `ledger`, `cell-<i>`, `trainer-<i>`; of HTTP `gateway`, `otlp`, `explorer`."""
        path = self.root / "endpoints.json"
        if not path.exists():
            raise NotFound(f"{path} is missing: is the run up? (`gyre up` writes it)")
        endpoints = json.loads(path.read_text())
        if name not in endpoints:
            raise ConfigError(f"{path} has no address for `{name}`; it names {', '.join(endpoints)}")
        return endpoints[name]


def lock_folder(root: Path) -> TextIO:
    """One supervisor a folder: held until the file is closed, or the process is gone. Raises Conflict."""
    file = (root / "lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise Conflict(f"{root} is in use by another `gyre`; stop it first, or choose another --run-dir") from None
    return file
