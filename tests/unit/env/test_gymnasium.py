"""Gymnasium environments for language models."""

import re

import aiohttp
import gymnasium
import numpy as np
import pytest

from examples.gymnasium_env.environment import FrozenLake, tasks
from gyre.env import StepResult, Task, ToolCall
from gyre.env.episode import Episode, Limits
from gyre.env.gymnasium import GymnasiumEnvironment
from gyre.env.model import ChatModel
from gyre.env.shapes import step_result
from gyre.errors import InvalidInput
from tests.unit.env.doubles import ChatDouble, tool_reply


def act(environment, action):
    return environment.step(ToolCall(call_id="c", name="act", arguments={"action": action}))


def test_the_frozen_lake_is_solved_by_its_known_path():
    """On the default 4×4 map down, down, right, right, down, right leads from S to G past all holes; its reward is 1."""
    lake = FrozenLake(next(tasks("train", 1, 1)))
    assert "[S]" in lake.reset()[0]["content"]
    results = [taken(lake, action) for action in ("down", "down", "right", "right", "down", "right")]
    assert [result.done for result in results] == [False] * 5 + [True]
    lake.reward_sum = sum(result.reward for result in results)  # as an episode keeps it
    assert lake.score().outcome == 1.0
    lake.close()


def test_a_hole_ends_it_without_success_and_an_unknown_action_is_refused():
    lake = FrozenLake(next(tasks("train", 1, 1)))
    lake.reset()
    assert act(lake, "jump").error and act(lake, 7).error
    act(lake, "right")
    assert taken(lake, "down").done and lake.score().outcome == 0.0
    lake.close()


def test_training_and_held_out_seeds_are_apart():
    """Even against odd numbers."""
    assert not {t.seed for t in tasks("train", 50, 1)} & {t.seed for t in tasks("heldout", 50, 1)}


class Counting(gymnasium.Env):
    """Its action is of any space; it is over by itself on the action `stop`, by its limit after two steps."""

    observation_space = gymnasium.spaces.Discrete(10)

    def __init__(self, space, stop=None, render_mode=None):
        self.action_space, self.stop, self.seen, self.render_mode = space, stop, [], None

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.seen.append(action)
        return len(self.seen), 0.5, self.stop is not None and action == self.stop, len(self.seen) == 2, {}


def counting(space, stop=None):
    class World(GymnasiumEnvironment):
        name, env_id = "counting", gymnasium.envs.registration.EnvSpec("Counting-v0", entry_point=Counting)
        options = {"space": space, "stop": stop}

    return World(Task(task_id="t", task_type="counting", seed=1))


def taken(environment, action):
    return step_result(act(environment, action))


def test_what_is_terminated_completes_and_what_is_truncated_is_out_of_turns():
    """The step at which both are said is the world's own end; rewards come along as the five-tuple has them."""
    world = counting(gymnasium.spaces.Discrete(3, start=1), stop=3)
    world.reset()
    assert taken(world, "1") == StepResult(content="1", reward=0.5)
    assert taken(world, "2") == StepResult(content="2", reward=0.5, truncated=True)
    assert world.over
    other = counting(gymnasium.spaces.Discrete(3, start=1), stop=3)
    other.reset()
    taken(other, 1)
    assert taken(other, 3) == StepResult(content="2", reward=0.5, done=True)


async def test_an_episode_of_a_truncated_world_times_out_and_is_judged_on_its_rewards():
    """B4: two steps of .5 are the 1.0 that counts as success; the ending says turns, not submitted."""

    def factory(task):
        return counting(gymnasium.spaces.Discrete(3))

    async def started(evidence):
        pass

    limits = Limits(wall_s=600, turns_max=9, observation_bytes_max=1000)
    async with (
        ChatDouble(lambda body, n: tool_reply('{"action": "1"}', "act")) as chat,
        aiohttp.ClientSession() as http,
    ):
        model = ChatModel(http, lambda: chat.base, "key", {"model": "policy"})
        ending = await Episode(factory, Task(task_id="t", task_type="c", seed=1), limits, model, started).run()
    assert (ending.ending, ending.reason, ending.evaluation.outcome) == ("timed_out", "turns", 1.0)
    assert len(chat.requests) == 2


S = gymnasium.spaces
PAIR = S.Dict({"turn": S.Discrete(2), "by": S.Box(-1.0, 1.0, (2,))})
MEMBERS = [
    (S.MultiDiscrete([2, 3]), [1, 2], [1, 3], "is outside"),
    (S.MultiBinary(3), [0, 1, 1], [0, 2, 0], "is outside"),
    (S.Box(-1.0, 1.0, (2,)), [0.5, -1], [0.5], r"numbers of shape \[2\]"),
    (S.Box(0, 9, (), np.int64), 3, 3.5, "whole numbers"),
    (S.Text(5, charset="abc"), "cab", "cabcab", "is outside"),
    (S.Tuple([S.Discrete(2), S.Text(3)]), ["1", "a"], ["1"], "an array of 2 values"),
    (PAIR, {"turn": "0", "by": [0, 1]}, {"turn": "0"}, "an object with"),
    (S.Box(-1.0, 1.0, (2,)), [0, 1], [float("nan"), 0], "numbers of shape"),
    (S.Box(-1.0, 1.0, (2,)), [0, 1], "much", "numbers of shape"),
]


@pytest.mark.parametrize("space, good, bad, words", MEMBERS)
def test_actions_of_any_space_are_members_of_it_or_refused_in_words(space, good, bad, words):
    """The world asserts membership itself; the schema names what the space has."""
    world = counting(space)
    world.reset()
    assert not taken(world, good).error
    refused = taken(world, bad)
    assert refused.error and re.search(words, refused.content), refused
    assert world.tools()[0]["function"]["parameters"]["properties"]["action"]["type"]


def test_a_space_without_a_form_in_json_is_refused_when_the_tools_are_asked_for():
    with pytest.raises(InvalidInput, match="Graph space have no form"):
        counting(S.Graph(S.Discrete(2), None)).tools()
