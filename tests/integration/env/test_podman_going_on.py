"""A harness in a container goes on from the snapshot of an attempt that was lost (C2, C4). Run by `make test-podman`."""

import pytest

from gyre.env.harness import Program
from gyre.env.harness.podman import Podman
from gyre.env.snapshots.spacing import Spacing
from tests.integration.env.conftest import IMAGE
from tests.integration.env.test_podman_environment import PYTHON
from tests.unit.env.harness.test_going_on import AGENT, PROGRAM, Attempts

pytestmark = pytest.mark.podman


async def test_it_finds_its_notes_and_its_files_at_the_same_paths_in_another_container(
    podman, listed, python_mounts, tmp_path, monkeypatch
):
    """Lost in its fourth call, its newest snapshot taken before the third: that turn is done again, with the log as it was then."""
    monkeypatch.setattr(Spacing, "interval_turns", lambda self: 2)
    agent = [PYTHON, AGENT[1]]
    program = Program(
        command=[*agent, "{prompt}"], goes_on=[*agent, "--continue", "Go on."], environment=PROGRAM.environment
    )
    mounts = python_mounts | {AGENT[1]: AGENT[1]}

    def make_sandbox(self):
        return Podman(IMAGE, podman=podman, mounts=mounts, python=PYTHON)

    attempts = Attempts(tmp_path, program=program, make_sandbox=make_sandbox)
    await attempts.lose(1, 4)
    ending = await attempts.run(2)
    assert attempts.turns == [[1, 2, 3, 4], [3, 4, 5]] and attempts.is_replay == [False, True]
    assert (ending.ending, ending.evaluation.outcome, ending.rollback_turns) == ("completed", 1.0, 1), ending
