"""Least privilege on the bus: one NATS key for each service, which may publish only its own facts and hear only what is sent to it.

Keys are made on first start, readable by their owner only. A service holds its own seed; the server knows public keys.
"""

import os
from pathlib import Path

import nkeys

from gyre import key_files
from gyre import records as r
from gyre.bus import streams
from gyre.bus.subjects import PREFIX, subject_pattern
from gyre.errors import ConfigError

SPEAKS: dict[str, tuple[type, ...]] = {
    "scheduler": (
        r.RunStarted, r.GroupSubmitted, r.GroupDispatched, r.TaskDispatched, r.WaterlevelChanged, r.RoleChanged, r.BurstOpened,
        r.PlanChosen, r.ExecutionCommanded, r.AlarmRaised,
    ),
    "gateway": (
        r.ExecutionLeased, r.ExecutionStarted, r.ExecutionEnded, r.ExecutionSuspended, r.ExecutionResumed, r.CallRecorded,
        r.RoleChanged, r.CellReported, r.AlarmRaised,
    ),
    "cell": (r.RoleChanged, r.AlarmRaised),
    "trajproc": (
        r.CallSetAside, r.RewardScored, r.SampleReady, r.SampleDropped, r.BatchExtended, r.BatchOverdue,
        r.BatchClosed, r.MicroStep, r.AlarmRaised,
    ),
    "trainer": (r.RoleChanged, r.WeightsPublished, r.StepOpened, r.StepJoined, r.StepUpdated, r.AlarmRaised),
    "ledger": (r.RewardWeighed, r.AlarmRaised),
    "operator": (),
}  # fmt: skip
"""Who may say what. `operator` is the `gyre` command: it declares streams and reads facts."""

_READ = ("$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.MSG.GET.*",
         "$JS.API.DIRECT.GET.>")  # fmt: skip
_CONSUMES: dict[str, tuple[str, ...]] = {
    "scheduler": (streams.FACTS,), "gateway": (streams.FACTS, streams.TASKS, streams.CLAIMS), "cell": (streams.FACTS,),
    "trajproc": (streams.FACTS,), "trainer": (streams.FACTS, streams.MICRO), "ledger": (streams.FACTS,),
    "operator": (streams.FACTS,),
}  # fmt: skip


def inbox_prefix(service: str) -> str:
    """Where answers and deliveries come to a service, and to no other."""
    return f"_INBOX_{service}"


def seed_path(keys: Path, service: str) -> Path:
    return keys / f"nats-{service}.seed"


def make_keys(keys: Path) -> None:
    """Make what is missing; an existing key is kept. Raises ConfigError."""
    keys.mkdir(parents=True, exist_ok=True)
    keys.chmod(0o700)
    for service in SPEAKS:
        key_files.keep(seed_path(keys, service), _new_seed)


def _new_seed() -> bytes:
    return nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)


def authorization(keys: Path, run: str = "*") -> str:
    """The server's authorization block for these keys. Raises NotFound, ConfigError."""
    users = "\n".join(_user(keys, service, run) for service in SPEAKS)
    return f"authorization {{ users: [\n{users}\n] }}"


def _user(keys: Path, service: str, run: str) -> str:
    public = _public_key(seed_path(keys, service))
    publish = [subject_pattern(run, kind) for kind in SPEAKS[service]]
    publish += [f"{PREFIX}.{run}.dead.{service}", *_READ]
    for stream in _CONSUMES[service]:
        publish += [
            f"$JS.API.CONSUMER.CREATE.{stream}", f"$JS.API.CONSUMER.CREATE.{stream}.>",
            f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.>", f"$JS.API.CONSUMER.INFO.{stream}.>",
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.>", f"$JS.ACK.{stream}.>",
        ]  # fmt: skip
    if service == "gateway":
        publish += [f"{streams.CLAIM_SUBJECT}.{run}.>"]
    if service == "operator":
        publish += ["$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.*"]
    allowed = ", ".join(f'"{subject}"' for subject in publish)
    return f'  {{ nkey: {public}, permissions: {{ publish: [{allowed}], subscribe: ["{inbox_prefix(service)}.>"] }} }}'


def _public_key(seed: Path) -> str:
    data = key_files.read(seed).strip()
    try:
        return nkeys.from_seed(data).public_key.decode()
    except (nkeys.NkeysError, ValueError) as error:
        raise ConfigError(
            f"{seed} holds no NATS seed: stop the run, remove the file and start again; it is made anew"
        ) from error
