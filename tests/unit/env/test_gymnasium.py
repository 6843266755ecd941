"""Gymnasium environments for language models."""

from examples.gymnasium_env.environment import FrozenLake, tasks
from gyre.env import ToolCall


def act(environment, action):
    return environment.step(ToolCall(call_id="c", name="act", arguments={"action": action}))


def test_the_frozen_lake_is_solved_by_its_known_path():
    """On the default 4×4 map down, down, right, right, down, right leads from S to G past all holes; its reward is 1."""
    lake = FrozenLake(next(tasks("train", 1, 1)))
    assert "[S]" in lake.reset()[0]["content"]
    results = [act(lake, action) for action in ("down", "down", "right", "right", "down", "right")]
    assert [result.done for result in results] == [False] * 5 + [True] and lake.score().outcome == 1.0
    lake.close()


def test_a_hole_ends_it_without_success_and_an_unknown_action_is_refused():
    lake = FrozenLake(next(tasks("train", 1, 1)))
    lake.reset()
    assert act(lake, "jump").error and act(lake, 7).error
    act(lake, "right")
    assert act(lake, "down").done and lake.score().outcome == 0.0
    lake.close()


def test_training_and_held_out_seeds_are_apart():
    """Even against odd numbers."""
    assert not {t.seed for t in tasks("train", 50, 1)} & {t.seed for t in tasks("heldout", 50, 1)}
