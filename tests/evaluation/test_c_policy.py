"""The C header is the policy: compiled with every warning an error, and run."""

import shutil
import subprocess
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box

from cmbpo.envs.spaces import rescaled
from cmbpo.evaluation import c_policy
from cmbpo.evaluation.evaluate import act
from cmbpo.evaluation.export import arrays
from cmbpo.networks import Normaliser, Policy, SquashedPolicy
from cmbpo.runs.errors import RunError

BOUNDS = Box(np.array([-1.0, 1.0]), np.array([3.0, 2.0]), dtype=np.float64)
HOSTILE = {"task": 'A */ int x = 1; /* "\n#error \\', "obs_names": '["größe", "b"]'}
PROGRAM = """
#include <stdio.h>
#include "walk.h"

int main(void)
{
    float obs[WALK_OBS], action[WALK_ACT] = {7.0f, 7.0f};
    for (;;) {
        for (int i = 0; i < WALK_OBS; i++)
            if (scanf("%f", &obs[i]) != 1) return 0;
        printf("%d", walk_act(obs, action));
        for (int i = 0; i < WALK_ACT; i++) printf(" %.9g", action[i]);
        printf("\\n");
    }
}
"""


@pytest.fixture(scope="module", params=[Policy, partial(Policy, compresses=True), SquashedPolicy])
def policy(request):
    """With a normaliser and a last layer large enough to reach the bounds."""
    made = request.param(
        4, 2, hidden=(64, 32), log_std=0.0, last_layer_scale=3.0, key=jax.random.key(3)
    )
    units = Normaliser(jnp.array([1.0, -2.0, 0.5, 0.0]), jnp.array([0.5, 3.0, 1.0, 10.0]))
    return eqx.tree_at(lambda p: p.normaliser, made, units)


@pytest.fixture(scope="module")
def compiled(policy, tmp_path_factory):
    """From rows of observations to rows of what it returned and the action."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler cc")
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "walk.h").write_bytes(c_policy.header("walk", arrays(policy, BOUNDS), HOSTILE))
    (folder / "main.c").write_text(PROGRAM)
    strict = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    subprocess.run(["cc", *strict, "main.c", "-o", "main", "-lm"], cwd=folder, check=True)

    def run(obs):
        lines = "\n".join(" ".join(map(str, row)) for row in obs)
        done = subprocess.run(
            [folder / "main"], input=lines, capture_output=True, text=True, check=True
        )
        return np.array([line.split() for line in done.stdout.splitlines()], float)

    return run


def test_it_acts_as_the_policy_does(policy, compiled):
    obs = np.random.default_rng(0).normal(0.0, 5.0, (500, 4)).astype(np.float32)
    found = compiled(obs)
    assert not found[:, 0].any()
    assert np.abs(found[:, 1:] - rescaled(act(policy, obs), BOUNDS)).max() < 1e-5
    assert np.std(found[:, 1:], axis=0).min() > 0.1, "the actions are no constants"


def test_what_is_not_finite_is_refused_and_the_action_stays(compiled):
    wrong = [[0.0, np.nan, 0.0, 0.0], [np.inf, 0.0, 0.0, 0.0], [0.0, 0.0, -np.inf, 0.0]]
    assert compiled(wrong).tolist() == [[1.0, 7.0, 7.0]] * 3


def test_no_action_leaves_the_bounds(compiled):
    found = compiled(np.random.default_rng(1).normal(0.0, 1e6, (500, 4)))
    assert found[:, 1:].min(axis=0).tolist() == [-1.0, 1.0]
    assert found[:, 1:].max(axis=0).tolist() == [3.0, 2.0]


def test_what_is_known_is_told_in_a_comment_that_nothing_ends(policy):
    text = c_policy.header("walk", arrays(policy, BOUNDS), HOSTILE).decode("ascii")
    comment, _, code = text.partition("*/")
    assert "obs_names" in comment
    assert code.lstrip().startswith("#ifndef WALK_H")
    assert comment.count("/*") == 1


@pytest.mark.parametrize("name", ["my policy.h", "2.h", "größe.h", ".h", "a.b.h"])
def test_a_name_that_is_none_in_c_is_refused(tmp_path, name):
    with pytest.raises(RunError, match=r"allowed: letters, digits and _ before .h"):
        c_policy.require_name(tmp_path / name)


def test_only_its_own_headers_are_its_own(policy, tmp_path):
    (tmp_path / "ours.h").write_bytes(c_policy.header("ours", arrays(policy, BOUNDS), {}))
    (tmp_path / "mine.h").write_text("#pragma once\n")
    assert c_policy.is_ours(tmp_path / "ours.h")
    assert not c_policy.is_ours(tmp_path / "mine.h")
    assert not c_policy.is_ours(tmp_path)
