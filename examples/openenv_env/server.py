"""An OpenEnv server, in an environment with the package `openenv`: `python examples/openenv_env/server.py PORT`. Nothing of Gyre is needed here."""

import sys

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
from pydantic import Field


class GuessAction(Action):
    """Guess the number."""

    number: int = Field(ge=0, le=9, description="from 0 to 9")


class GuessObservation(Observation):
    said: str = ""


class Guessing(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_) -> GuessObservation:
        self._secret, self._state = (seed or 0) % 10, State(episode_id=episode_id)
        return GuessObservation(said="My number is from 0 to 9.")

    def step(self, action: GuessAction, timeout_s: float | None = None, **_) -> GuessObservation:
        self._state.step_count += 1
        is_right = action.number == self._secret
        said = "right" if is_right else "too low" if action.number < self._secret else "too high"
        return GuessObservation(said=said, done=is_right, reward=1.0 if is_right else 0.0)

    @property
    def state(self) -> State:
        return self._state


if __name__ == "__main__":
    app = create_fastapi_app(Guessing, GuessAction, GuessObservation, max_concurrent_envs=64)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
