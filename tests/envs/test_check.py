"""What will hurt is said before anything is trained, and what is fine is called so."""

from itertools import islice

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from cmbpo.envs import check
from cmbpo.envs.adapter import adapt
from cmbpo.envs.check import Finding, examine, main
from cmbpo.envs.random_steps import random_steps
from cmbpo.settings.schema import EnvSettings

STEPS = 2000

pytestmark = pytest.mark.usefixtures("optimised")


class Cart(gymnasium.Env):
    """A cart on a rail with a cost on its speed."""

    def __init__(self):
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = Box(-3.0, 3.0, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.speed = self.np_random.normal(size=2)
        return self.seen(), {}

    def seen(self):
        return np.array([self.at, self.speed])

    def paid(self):
        return float(abs(self.speed) > 1.0)

    def step(self, action) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.speed += 0.3 * float(action[0]) - 0.3 * self.speed
        self.at += 0.1 * self.speed
        return self.seen(), -abs(self.at), False, False, {"cost": self.paid()}


class Blind(Cart):
    """Does not see its speed, nor what would tell it."""

    def seen(self):
        return np.array([np.sin(1e4 * self.at), 0.0])


class Free(Cart):
    """Never costs anything."""

    def paid(self):
        return 0.0


class Rewarding(Cart):
    """Is paid for being slow."""

    def paid(self):
        return abs(self.speed) - 0.5


class Unseeded(Cart):
    """Draws from a generator that no seed reaches."""

    def step(self, action):
        self.speed += np.random.normal()
        return super().step(action)


class Timed(Cart):
    """Calls its time limit a termination."""

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return super().reset(seed=seed)

    def step(self, action):
        self.time += 1
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, self.time == 30, truncated, info


class Wrong(Cart):
    """Its function forgets that speed has two directions."""

    def cost(self, obs, act, next_obs):
        return 1.0 * (next_obs[..., 1] > 1.0)


class Accounting(Cart):
    """Has a method of this name for a purpose of its own."""

    def cost(self, currency):
        return f"12 {currency}"


class Impatient(Cart):
    """Truncates its episodes before the time limit around it."""

    def step(self, action):
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, abs(self.speed) > 1.5, info


class Uncounted(Cart):
    """Its cost is never a number."""

    def paid(self):
        return np.nan


class Sometimes(Cart):
    """Its cost is not a number where it is slow."""

    def paid(self):
        return np.nan if abs(self.speed) < 0.1 else 0.0


class Signed(Cart):
    """Its cost has two values, neither of them 0."""

    def paid(self):
        return 0.5 if abs(self.speed) > 1.0 else -0.5


class Constant(Cart):
    """Costs the same always."""

    def paid(self):
        return 1.0


class Spoilt(Cart):
    """Shows no numbers any more once it was fast, until it is reset."""

    def reset(self, *, seed=None, options=None):
        self.broken = False
        return super().reset(seed=seed)

    def seen(self):
        return np.full(2, np.nan) if self.broken else super().seen()

    def paid(self):
        self.broken |= abs(self.speed) > 1.0
        return super().paid()


class Stuck(Cart):
    """One of its two actions has no width."""

    def __init__(self):
        super().__init__()
        self.action_space = Box(np.array([-3.0, 1.0]), np.array([3.0, 1.0]), dtype=np.float64)


class Worded(Cart):
    """Says its cost in words."""

    def paid(self):  # pyright: ignore[reportIncompatibleMethodOverride]
        return "much"


class Buttons(Cart):
    """Has three buttons."""

    def __init__(self):
        super().__init__()
        self.action_space = Discrete(3)


def findings(kind, horizon: int | None = 50, **settings) -> list[Finding]:
    def make():
        return kind() if horizon is None else gymnasium.wrappers.TimeLimit(kind(), horizon)

    return list(examine(make, EnvSettings(**settings), steps=STEPS))


def test_of_a_good_environment_every_line_is_fine(monkeypatch):
    monkeypatch.setattr(check, "SLOW", np.inf)  # on a busy machine every environment is
    found = findings(Cart)
    assert {finding.verdict for finding in found} == {"fine"}
    said = " ".join(finding.sentence for finding in found)
    for part in ("vector of 2", "50 steps", "repeatable", "finite", "observations tell 'cost'"):
        assert part in said
    assert "CMBPO learns it" in said


@pytest.mark.parametrize(
    ("kind", "verdict", "sentence"),
    [
        (Blind, "hurts", "observations hardly tell 'cost'"),
        (Blind, "hurts", "never change: index 1"),
        (Free, "hurts", "was 0 in all of 2,000 random steps"),
        (Rewarding, "hurts", "negative"),
        (Unseeded, "hurts", "not repeatable"),
        (Timed, "hurts", "terminated after exactly 30 steps"),
        (Wrong, "refused", "differs from the environment"),
        (Buttons, "refused", "Discrete"),
        (Worded, "refused", "info['cost'] is 'much'; allowed: a number"),
        (Uncounted, "refused", "'cost' was nan in the first and finite in no step"),
        (Sometimes, "hurts", "of the steps; they count as terminal, earn nothing and cost 1"),
        (Impatient, "hurts", "they count as whole episodes"),
        (Constant, "hurts", "'cost' was 1 in all sound steps"),
        (Accounting, "fine", "'cost' is no function cost(obs, act, next_obs) and is not used"),
        (Signed, "fine", "observations tell 'cost'"),
    ],
)
def test_what_hurts_is_named(kind, verdict, sentence):
    assert any(f.verdict == verdict and sentence in f.sentence for f in findings(kind))


def test_an_action_without_width_is_named():
    found = list(islice(examine(Stuck, EnvSettings()), 3))
    assert found[-1].verdict == "hurts"
    assert "the action whose low and high are the same: index 1" in found[-1].sentence


@pytest.mark.parametrize("kind", [Uncounted, Sometimes])
def test_a_cost_that_is_no_number_is_not_called_0(kind):
    assert not any("was 0 in all of" in f.sentence for f in findings(kind))


def test_after_an_observation_that_is_no_number_an_episode_begins_as_in_training():
    env = adapt(Spoilt(), ("cost",))
    rows = random_steps(env, 500, horizon=50, seed=0)
    broken = np.isnan(rows.next_obs).any(axis=1)
    assert 5 < broken.sum() < 250
    assert rows.terminated[broken].all()
    assert np.isfinite(rows.obs).all()


@pytest.mark.parametrize("name", ["PointCircle-v0", "cmbpo/AntSafe-v0"])
def test_a_task_of_this_package_needs_no_check(name, capsys):
    assert main(name, EnvSettings())
    assert capsys.readouterr().out == f"{name} is a task of this package and needs no check\n"


def test_a_missing_time_limit_and_a_missing_cost_are_refused():
    assert any(
        f.verdict == "refused" and "no time limit" in f.sentence for f in findings(Cart, None)
    )
    last = findings(Cart, cost_key=("damage",))[-1]
    assert last.verdict == "refused"
    assert "no 'damage', but 'cost'" in last.sentence
