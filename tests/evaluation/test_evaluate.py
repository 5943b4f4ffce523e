"""Evaluation counts whole episodes without favouring short ones, and says how sure it is."""

import dataclasses
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from cmbpo.envs.find import find_task
from cmbpo.envs.simulator import Simulator
from cmbpo.evaluation import evaluate as evaluation
from cmbpo.evaluation import evaluated
from cmbpo.evaluation.evaluate import act, evaluate, load_policy, run_episodes
from cmbpo.evaluation.evaluated import Episodes, estimate
from cmbpo.networks import Policy
from cmbpo.runs.errors import RunError
from cmbpo.runs.run_folder import Run
from cmbpo.settings.schema import PolicySettings, TrainSettings
from cmbpo.tasks.point_circle import PointCircle


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cliff(PointCircle):
    """A short PointCircle that ends where the point has gone too far to the right."""

    horizon = 60

    def failed(self, obs):
        return obs[..., 0] > 0.15


TASK = Cliff()


@pytest.fixture(scope="module")
def policy():
    made = Policy(4, 2, hidden=(8,), log_std=-1.0, last_layer_scale=1.0, key=jax.random.key(1))
    return eqx.tree_at(lambda p: p.net.layers[-1].bias, made, jnp.array([0.3, 0.1]))


def by_hand(policy, copies, each):
    """The first `each` deterministic episodes of each copy: (return, cost, length, terminated)."""
    simulator = Simulator(TASK, copies, seed=7)
    found = [[] for _ in range(copies)]
    running = [[0.0, 0.0, 0] for _ in range(copies)]
    while min(map(len, found)) < each:
        step = simulator.step(act(policy, simulator.obs))
        for i in range(copies):
            running[i][0] += step.reward[i]
            running[i][1] += step.cost[i, 0]
            running[i][2] += 1
            if step.terminated[i] or step.truncated[i]:
                found[i].append((*running[i], bool(step.terminated[i])))
                running[i] = [0.0, 0.0, 0]
    return [episodes[:each] for episodes in found]


def test_each_copy_contributes_its_first_episode(policy):
    episodes = run_episodes(policy, TASK, episodes=12, deterministic=True, seed=7)
    expected = [first for (first,) in by_hand(policy, 12, 1)]
    assert len({length for _, _, length, _ in expected}) > 2
    np.testing.assert_allclose(episodes.returns, [e[0] for e in expected])
    np.testing.assert_array_equal(episodes.costs[:, 0], [e[1] for e in expected])
    np.testing.assert_array_equal(episodes.lengths, [e[2] for e in expected])
    np.testing.assert_array_equal(episodes.terminated, [e[3] for e in expected])


def test_with_more_episodes_than_copies_each_copy_owes_a_fixed_number(policy, monkeypatch):
    monkeypatch.setattr(Cliff, "most_copies", 3, raising=False)
    episodes = run_episodes(policy, TASK, episodes=8, deterministic=True, seed=7)
    first, second, third = by_hand(policy, 3, 3)
    expected = [*first, *second, *third[:2]]
    np.testing.assert_array_equal(episodes.lengths, [e[2] for e in expected])


def test_the_interval_of_a_mean_is_students():
    values = np.random.default_rng(0).normal(3.0, 2.0, size=20)
    mean, margin = estimate(values, np.ones(20))
    low, high = stats.t.interval(0.95, 19, loc=values.mean(), scale=stats.sem(values))
    np.testing.assert_allclose([mean - margin, mean + margin], [low, high])


def test_the_interval_of_a_rate_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        lengths = rng.integers(50, 1001, size=20).astype(float)
        costs = rng.poisson(0.01 * lengths).astype(float)
        rate, margin = estimate(costs, lengths)
        covered += abs(rate - 0.01) <= margin
    assert 0.92 < covered / 2000 < 0.97


def test_one_episode_has_a_mean_but_no_interval():
    assert str(estimate(np.array([2.5]), np.ones(1))) == "2.50 ± ?"


def test_both_kinds_start_alike_and_the_noise_tells_them_apart(policy):
    result = evaluate(policy, TASK, episodes=4, seed=3)
    again = evaluate(policy, TASK, episodes=4, seed=3)
    np.testing.assert_array_equal(result.stochastic.returns, again.stochastic.returns)
    np.testing.assert_array_equal(result.deterministic.returns, again.deterministic.returns)
    assert (result.stochastic.returns != result.deterministic.returns).any()
    quiet = eqx.tree_at(lambda p: p.log_std, policy, jnp.full(2, -40.0))
    result = evaluate(quiet, TASK, episodes=4, seed=3)
    np.testing.assert_allclose(result.stochastic.returns, result.deterministic.returns)


def test_printed_it_is_the_table(policy):
    result = evaluate(policy, TASK, episodes=2, seed=0)
    lines = str(result).splitlines()
    assert any("deterministic" in line and "stochastic" in line for line in lines)
    assert any(str(result.deterministic.mean_return()) in line for line in lines)


def test_the_costliest_tenth_stands_beside_the_mean(policy):
    costs = np.array([[0.0, 1.0]] * 18 + [[30.0, 1.0], [50.0, 2.0]])
    whole = np.full(20, 60)
    some = Episodes(np.zeros(20), costs, whole, np.zeros(20, bool))
    assert some.mean_cost().mean == 4.0
    assert some.tail_cost() == 40.0
    assert some.tail_cost(1) == 1.5
    result = evaluate(policy, TASK, episodes=4, seed=0)
    expected = tuple(
        f"{side.costs.max():,.2f}" for side in (result.deterministic, result.stochastic)
    )
    (line,) = [line for line in str(result).splitlines() if "costliest tenth" in line]
    assert tuple(re.findall(r"[\d.,]+(?= +│)", line)[-2:]) == expected


def test_an_episode_cut_short_is_held_to_the_same_rate():
    episodes = Episodes(
        returns=np.zeros(3),
        costs=np.array([[9.0], [11.0], [2.0]]),
        lengths=np.array([1000, 1000, 100]),
        terminated=np.array([False, False, True]),
    )
    assert episodes.within([10.0]) == pytest.approx(1 / 3)
    assert episodes.mean_cost().mean == pytest.approx(22 / 3)
    assert episodes.cost_rate().mean == pytest.approx(22 / 2.1)


def test_no_episodes_are_refused(policy):
    with pytest.raises(ValueError, match="episodes is 0"):
        evaluate(policy, TASK, episodes=0)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_that_cannot_be_is_refused(policy, seed):
    with pytest.raises(ValueError, match=f"seed is {seed}; allowed: .* 0 to 4,294,967,295"):
        evaluate(policy, TASK, seed=seed)


def test_one_observation_and_a_batch_give_the_same_actions(policy):
    obs = np.random.default_rng(0).normal(size=(2, 3, 4))
    batch = act(policy, obs)
    assert batch.shape == (2, 3, 2)
    np.testing.assert_allclose(act(policy, obs[1, 2]), batch[1, 2], rtol=1e-5)
    np.testing.assert_allclose(
        batch[1, 2], np.clip(policy(jnp.asarray(obs[1, 2], jnp.float32)).mean, -1, 1), rtol=1e-5
    )


def test_actions_stay_within_the_action_space(policy):
    wide = eqx.tree_at(lambda p: p.log_std, policy, jnp.full(2, 3.0))
    drawn = act(wide, np.zeros((100, 4)), deterministic=False, seed=1)
    assert np.abs(drawn).max() == 1.0


@pytest.fixture
def folder(policy, tmp_path):
    return saved(policy, tmp_path, PolicySettings(hidden=(8,)))


def saved(policy, folder, settings):
    with Run.create(TrainSettings(log_dir=str(folder), policy=settings)) as run:
        run.save({"learner": {"policy": policy, "archive": jnp.zeros(9)}}, 1)
    return run.folder


def test_the_policy_of_a_run_is_the_one_it_saved(policy, folder):
    loaded = load_policy(Run.open(folder), TASK)
    obs = np.random.default_rng(0).normal(size=(5, 4))
    np.testing.assert_array_equal(act(loaded, obs), act(policy, obs))


@pytest.mark.parametrize("best", [False, True])
def test_a_policy_that_compresses_does_so_after_it_is_loaded(tmp_path, best):
    policy = Policy(
        *(4, 2),
        hidden=(8,),
        log_std=-1.0,
        last_layer_scale=1.0,
        compresses=True,
        key=jax.random.key(1),
    )
    folder = saved(policy, tmp_path, PolicySettings(hidden=(8,), compress=True))
    with Run.resume(folder) as run:
        run.save_best(policy, {"update": 1, "env_steps": 9, "return": 2.0, "cost": [3.0]})
    loaded = load_policy(Run.open(folder), TASK, best=best)
    obs = np.random.default_rng(0).normal(0.0, 9.0, (5, 4))
    np.testing.assert_array_equal(act(loaded, obs), act(policy, obs))


def test_the_command_prints_both_kinds_side_by_side(folder, capsys):
    evaluation.main(folder, episodes=2, seed=5)
    printed = capsys.readouterr().out
    assert "deterministic" in printed
    assert "stochastic" in printed
    assert "(limit 10)" in printed


def test_the_episodes_can_be_kept(policy, tmp_path):
    folder = saved(policy, tmp_path, PolicySettings(hidden=(8,)))
    with Run.resume(folder) as run:
        run.save_best(policy, {"update": 1, "env_steps": 900, "return": 2.0, "cost": [3.0]})
    path = folder / evaluated.FILE
    evaluation.main(folder, episodes=3, seed=5, out=path, best=True)
    kept = evaluated.read(path)
    run = Run.open(folder)
    expected = evaluate(policy, find_task(run.settings), episodes=3, seed=5)
    assert kept.env_steps == 900
    assert kept.cost_limits == (10.0,)
    for kind in evaluated.KINDS:
        there, here = getattr(kept, kind), getattr(expected, kind)
        np.testing.assert_allclose(there.returns, here.returns, rtol=1e-6)
        np.testing.assert_array_equal(there.costs, here.costs)
        np.testing.assert_array_equal(there.lengths, here.lengths)


def test_a_place_that_is_another_file_is_refused_before_any_episode(folder, capsys):
    with pytest.raises(ValueError, match="is no evaluation"):
        evaluation.main(folder, episodes=2, seed=5, out=folder / "config.json")
    assert capsys.readouterr().out == ""


def test_how_far_the_episodes_are_is_told_until_they_are_done(policy):
    told = []
    evaluate(policy, TASK, episodes=3, seed=3, watch=lambda *now: told.append(now))
    for kind in evaluation.KINDS:
        shares = [share for of, share in told if of == kind]
        assert len(shares) > 2
        assert shares[-1] == 1.0
        assert 0.0 < shares[0] < 0.5


@pytest.mark.parametrize("name", ["film.xyz", "film"])
def test_a_video_of_an_unknown_kind_is_refused_before_any_episode(folder, name, capsys):
    with pytest.raises(RunError, match=r"allowed: \.mp4 or \.gif"):
        evaluation.main(folder, episodes=2, seed=5, video=folder / name)
    assert capsys.readouterr().out == ""


def test_a_video_that_cannot_be_drawn_is_refused_before_any_episode(folder, monkeypatch, capsys):
    def undrawn(task):
        raise RunError(f"the video of {task.name} cannot be drawn")

    monkeypatch.setattr(evaluation, "require_pictures", undrawn)
    with pytest.raises(RunError, match="the video of PointCircle-v0 cannot be drawn"):
        evaluation.main(folder, episodes=2, seed=5, video=folder / "film.mp4")
    assert capsys.readouterr().out == ""
