"""What submitters send, checked: a Task message → a TaskSpec, or an error that says what would be right."""

import math
import re
from typing import Any

from gyre.api.scheduler.v1 import scheduler_pb2 as pb
from gyre.errors import InvalidInput
from gyre.ids import is_token
from gyre.records import Limits, TaskSpec
from gyre.records.task import TRAINED_TEMPERATURES
from gyre.strict_json import read_object

GROUP_SIZE_MAX = 1024
PAYLOAD_BYTES_MAX = 256 * 1024
"""A payload travels with each of the group's N task messages; a message may have 1 MiB."""
_TYPE = re.compile(r"[A-Za-z0-9_.-]{1,128}")
"""No part of a subject, so it may have dots: `repair.operator`."""
_MAY_BE_ZERO = ("tokens_max", "calls_max", "concurrency_max")
PURPOSES = ("train", "evaluation")


def parse(task: pb.Task, index: int) -> TaskSpec:
    """Raises InvalidInput, which names the task by its place and id."""
    problems = [text for holds, text in _rules(task) if not holds]
    payload = _payload(task.payload_json, problems)
    if problems:
        raise InvalidInput(f"task {index} (`{task.task_id[:80]}`): " + "; ".join(problems))
    return TaskSpec(
        task_id=task.task_id, task_type=task.task_type, environment=task.environment, seed=task.seed, payload=payload,
        tenant=task.tenant or "default", purpose=task.purpose or "train", group_size=task.group_size,
        temperature=task.temperature, top_p=task.top_p or 1.0,
        limits=Limits(
            wall_s=task.limits.wall_s, turns_max=task.limits.turns_max, context_tokens_max=task.limits.context_tokens_max,
            output_tokens_max=task.limits.output_tokens_max, tokens_max=task.limits.tokens_max, calls_max=task.limits.calls_max,
            concurrency_max=task.limits.concurrency_max,
        ),
    )  # fmt: skip


def _rules(task: pb.Task) -> list[tuple[bool, str]]:
    limits = task.limits
    return [
        (bool(task.task_id) and len(task.task_id) <= 256, "task_id must have 1 to 256 characters"),
        (
            _TYPE.fullmatch(task.task_type) is not None,
            f"task_type is 1 to 128 letters, digits, ., - and _, not {task.task_type[:80]!r}",
        ),
        (is_token(task.environment), _token_text("environment", task.environment)),
        (not task.tenant or is_token(task.tenant), _token_text("tenant", task.tenant)),
        (task.purpose in ("", *PURPOSES), f"purpose is `train` or `evaluation`, not {task.purpose[:40]!r}"),
        (1 <= task.group_size <= GROUP_SIZE_MAX, f"group_size is 1 to {GROUP_SIZE_MAX}, not {task.group_size}"),
        (0 <= task.temperature < math.inf, f"temperature is a number from 0, not {task.temperature}"),
        (
            task.purpose == "evaluation" or TRAINED_TEMPERATURES[0] <= task.temperature <= TRAINED_TEMPERATURES[1],
            f"temperature is {TRAINED_TEMPERATURES[0]:g} to {TRAINED_TEMPERATURES[1]:g} where the task is trained, not {task.temperature:g}: at 0 "
            "nothing is drawn that could be learned from",
        ),
        (0 <= task.top_p <= 1, f"top_p is above 0 and at most 1, not {task.top_p}"),
        (0 < limits.wall_s < math.inf, f"limits.wall_s is a positive number of seconds, not {limits.wall_s}"),
        (limits.turns_max > 0, f"limits.turns_max is at least 1, not {limits.turns_max}"),
        (limits.context_tokens_max > 0, f"limits.context_tokens_max is at least 1, not {limits.context_tokens_max}"),
        (limits.output_tokens_max > 0, f"limits.output_tokens_max is at least 1, not {limits.output_tokens_max}"),
        *(
            (getattr(limits, name) >= 0, f"limits.{name} is 0 (no bound) or more, not {getattr(limits, name)}")
            for name in _MAY_BE_ZERO
        ),
    ]


def _token_text(field: str, value: str) -> str:
    return f"{field} is 1 to 128 letters, digits, - and _, not {value[:80]!r}"


def _payload(text: str, problems: list[str]) -> dict[str, Any]:
    if len(text.encode()) > PAYLOAD_BYTES_MAX:
        problems.append(
            f"payload_json has more than {PAYLOAD_BYTES_MAX} bytes; put large data where the environment finds it"
        )
        return {}
    try:
        return read_object(text, "payload_json", PAYLOAD_BYTES_MAX)
    except InvalidInput as error:
        problems.append(str(error))
        return {}
