"""The bad environments of the tests, going wrong in the first steps, later, or much later."""

from functools import partial

import gymnasium
from tests.envs.bad_environments import BAD, HORIZON, LATE

STEPS = (3, 25, 48)
"""Steps of a copy after which they go wrong: in the warm-up, in the first updates, and later."""


def made(name: str, steps: int) -> gymnasium.Env:
    """One that goes wrong after so many steps."""
    env = BAD[name].make()
    # they count their steps and go wrong at LATE
    env.count = LATE - steps
    return env


def env_id(name: str, steps: int) -> str:
    """What `--env-id` takes."""
    return f"{__name__}:{name}-{steps}-v0"


for _name in BAD:
    for _steps in STEPS:
        gymnasium.register(
            f"{_name}-{_steps}-v0",
            entry_point=partial(made, _name, _steps),  # pyright: ignore[reportArgumentType]
            max_episode_steps=HORIZON,
        )
