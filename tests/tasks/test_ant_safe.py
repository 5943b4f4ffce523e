"""AntSafe: facts by hand, its edges, and walls that cost nothing but are there."""

import gymnasium
import mujoco
import numpy as np
import pytest

import cmbpo.tasks
from cmbpo.envs.simulator import Simulator
from cmbpo.tasks.ant_safe import AntSafe, centre_line
from cmbpo.tasks.physics.walls import WalledPhysics

TASK = AntSafe()
MODEL = TASK.model
WALLS = np.r_[16:58, 72:108]


def standing() -> np.ndarray:
    """An ant that stands, observed."""
    obs = np.zeros(29)
    obs[0], obs[1] = 0.5, 1.0
    return obs


def walk(physics: WalledPhysics, state: np.ndarray, steps: int, *, seed: int = 0) -> np.ndarray:
    """States after some steps of random torques."""
    random = np.random.default_rng(seed)
    for _ in range(steps):
        state, _ = physics.step(state, random.uniform(-1, 1, (len(state), 8)))
    return state


def starts(n: int, *, seed: int = 0) -> np.ndarray:
    return np.stack([TASK.start(np.random.default_rng([seed, i])) for i in range(n)])


def test_facts_of_the_model():
    assert (MODEL.nq, MODEL.nv, MODEL.nu) == (57, 50, 8)
    assert MODEL.body_mass[:14].sum() == pytest.approx(0.911, abs=1e-3)
    np.testing.assert_allclose(MODEL.body_mass[14:], 1.12e-6)
    assert MODEL.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4
    assert TASK.dt == pytest.approx(0.05)
    assert MODEL.opt.timestep == TASK.timestep
    np.testing.assert_array_equal(MODEL.actuator_gear[:, 0], np.full(8, 150.0))
    places = MODEL.body_pos[14:]
    np.testing.assert_array_equal(places[:, 0], [0, 0, 40, 40, 80, 80])
    np.testing.assert_array_equal(places[:, 1], [5, -5] * 3)
    np.testing.assert_array_equal(places[:, 2], np.ones(6))
    yaw = 2 * np.degrees(np.arctan2(MODEL.body_quat[14:, 3], MODEL.body_quat[14:, 0]))
    np.testing.assert_allclose(yaw, [30, 30, -30, -30, 30, 30])


def test_centre_line():
    slope = np.tan(np.pi / 6)
    x = np.array([-30.0, 0.0, 10.0, 20.0, 30.0, 40.0, 59.0, 60.0, 61.0, 80.0, 99.0, 100.0, 150.0])
    expected = np.array([-30, 0, 10, 20, 10, 0, -19, 20, -19, 0, 19, 20, 20]) * slope
    np.testing.assert_allclose(centre_line(x), expected, atol=1e-12)


def test_walls_stand_five_metres_beside_the_centre_line():
    for body in range(14, 20):
        x, y, _ = MODEL.body_pos[body]
        w, z = MODEL.body_quat[body, [0, 3]]
        along = np.array([w * w - z * z, 2 * w * z])
        for s in (-19.0, 0.0, 19.0):
            point = np.array([x, y]) + s * along
            assert abs(point[1] - centre_line(point[:1])[0]) == pytest.approx(5.0)


def test_walls_come_to_rest_upright():
    state = walk(WalledPhysics(MODEL, TASK.ant_alone, TASK.frame_skip, 1), starts(1), 40)
    poses = state[0, 16:58].reshape(6, 7)
    # half the height and the margin of the contact: 0.02 m, or 0.01 m before MuJoCo added them up
    np.testing.assert_allclose(poses[:, 2], 0.715, atol=6e-3)
    np.testing.assert_allclose(poses[:, :2], MODEL.body_pos[14:, :2], atol=1e-6)
    np.testing.assert_allclose(poses[:, 3:], MODEL.body_quat[14:], atol=1e-6)
    assert np.abs(state[0, 72:108]).max() < 1e-8


@pytest.mark.parametrize("age", [0, 3, 5, 9, 14, 40])
def test_a_step_without_walls_is_a_step_with_them(age):
    """From equal states one step agrees with the full physics to 1e-9."""
    physics = WalledPhysics(MODEL, TASK.ant_alone, TASK.frame_skip, 1)
    state = walk(physics, starts(3, seed=age), age)
    act = np.random.default_rng(age).uniform(-1, 1, (3, 8))
    (fast, forces), (full, all_forces) = physics.step(state, act), physics.step_whole(state, act)
    np.testing.assert_allclose(fast[:, :-1], full[:, :-1], rtol=0, atol=1e-9)
    terms = TASK.reward_terms(state, act, fast, forces)
    expected = TASK.reward_terms(state, act, full, all_forces)
    np.testing.assert_allclose(
        terms["reward_contact"], expected["reward_contact"], rtol=0, atol=1e-9
    )


def test_a_step_is_what_mujoco_alone_makes_of_the_scene():
    """As the authors' environment steps it: five times `mj_step`, then the forces of contacts."""
    physics = WalledPhysics(MODEL, TASK.ant_alone, TASK.frame_skip, 1)
    state = walk(physics, starts(6), 30)
    act = np.full((6, 8), 0.3)
    next_state, forces = physics.step(state, act)
    terms = TASK.reward_terms(state, act, next_state, forces)
    contact = np.empty(6)
    for i in range(6):
        data = mujoco.MjData(MODEL)
        data.qpos[:], data.qvel[:], data.ctrl[:] = state[i, 1:58], state[i, 58:108], act[i]
        for _ in range(5):
            mujoco.mj_step(MODEL, data)
        mujoco.mj_rnePostConstraint(MODEL, data)
        np.testing.assert_allclose(next_state[i, 1:58], data.qpos, rtol=0, atol=1e-9)
        np.testing.assert_allclose(next_state[i, 58:108], data.qvel, rtol=0, atol=1e-9)
        contact[i] = -0.5e-3 * np.sum(np.clip(data.cfrc_ext, -1, 1) ** 2)
    np.testing.assert_allclose(terms["reward_contact"], contact, rtol=0, atol=1e-9)
    assert contact.min() < -1e-4


def pushed(steps: int) -> tuple[np.ndarray, np.ndarray]:
    """An ant thrown sideways at the wall beside it: the states before, and some steps later."""
    physics = WalledPhysics(MODEL, TASK.ant_alone, TASK.frame_skip, 1)
    state = walk(physics, starts(1), 20)
    before = state.copy()
    state[0, 1:3] = [0.0, 3.0]
    state[0, 58:60] = [-2.0, 8.0]
    for _ in range(steps):
        state, _ = physics.step(state, np.zeros((1, 8)))
    return before, state


def test_walls_fall_when_pushed():
    before, after = pushed(40)
    tilt = 1 - 2 * np.square(after[0, 16:58].reshape(6, 7)[:, 4:6]).sum(axis=1)
    assert tilt[0] < 0.5
    np.testing.assert_allclose(tilt[1:], 1.0, atol=1e-6)
    assert np.abs(after[0, WALLS] - before[0, WALLS]).max() > 0.5


def test_fallen_walls_rest_again_and_stay_where_they_fell():
    """Once a full step no longer moves them they are left alone, at 1e-9 of the full physics."""
    physics = WalledPhysics(MODEL, TASK.ant_alone, TASK.frame_skip, 1)
    _, state = pushed(40)
    state[0, 1:4] = [5.0, 0.0, 0.6]
    state[0, 58:72] = 0.0
    for _ in range(400):
        state, _ = physics.step(state, np.zeros((1, 8)))
        if state[0, -1] != -1.0:
            break
    assert state[0, -1] != -1.0
    act = np.full((1, 8), 0.1)
    fast, full = physics.step(state, act)[0], physics.step_whole(state, act)[0]
    np.testing.assert_allclose(fast[:, :-1], full[:, :-1], rtol=0, atol=1e-9)


def test_an_ant_that_outruns_the_look_ahead_still_hits_the_wall():
    physics = WalledPhysics(MODEL, TASK.ant_alone, TASK.frame_skip, 1)
    state = walk(physics, starts(1), 20)
    state[0, 58:60] = [-30.0, 52.0]
    state, _ = physics.step(state, np.zeros((1, 8)))
    state, _ = physics.step(state, np.zeros((1, 8)))
    assert state[0, -1] == -1.0


EDGES = [
    ({}, 0.0, False),
    ({0: 0.2}, 0.0, False),
    ({0: 0.1999}, 1.0, True),
    ({0: 1.0}, 0.0, False),
    ({0: 1.0001}, 1.0, True),
    ({2: np.sqrt(0.849)}, 0.0, False),
    ({2: np.sqrt(0.851)}, 1.0, True),
    ({2: 0.8, 3: 0.45}, 0.0, False),
    ({2: 0.8, 3: 0.46}, 1.0, True),
    ({28: 3.2}, 0.0, False),
    ({28: 3.2001}, 1.0, False),
    ({28: -3.2}, 0.0, False),
    ({28: -3.2001}, 1.0, False),
    ({28: 6.8}, 1.0, False),
    ({28: 30.0}, 1.0, False),
]


@pytest.mark.parametrize(("changes", "cost", "ended"), EDGES)
def test_cost_and_end_at_the_edges(changes, cost, ended):
    obs = standing()
    for index, value in changes.items():
        obs[index] = value
    assert TASK.cost(obs, np.zeros(8), obs) == cost
    assert TASK.terminated(obs, np.zeros(8), obs) == ended


@pytest.mark.parametrize(
    ("y_off", "cost"), [(3.2, 0.0), (3.2001, 1.0), (-6.7999, 1.0), (6.8, 0.0), (30.0, 0.0)]
)
def test_the_released_cost_is_a_band(y_off, cost):
    task = cmbpo.tasks.get("AntSafe", cost_band=True)
    obs = standing()
    obs[28] = y_off
    assert task.cost(obs, np.zeros(8), obs) == cost
    obs[0] = 0.1
    assert task.cost(obs, np.zeros(8), obs) == 1.0


def test_a_wrong_cost_band_is_refused():
    with pytest.raises(ValueError, match="cost_band is 'yes'; allowed: True, False"):
        cmbpo.tasks.get("AntSafe", cost_band="yes")


def test_observation_entries():
    state = starts(1)
    state[0, 1:3] = [45.0, 2.0]
    obs = TASK.observe(state, np.empty((1, 0)))[0]
    np.testing.assert_array_equal(obs[:13], state[0, 3:16])
    np.testing.assert_array_equal(obs[13:27], state[0, 58:72])
    assert obs[27] == 9.0
    assert obs[28] == pytest.approx(2.0 + 5.0 * np.tan(np.pi / 6))


def test_reward_terms():
    copies, act = TASK.copies(2, threads=1), np.full((2, 8), -2.0)
    state, obs = copies.begin(np.arange(2), [np.random.default_rng(i) for i in range(2)])
    for _ in range(20):
        step = copies.step(state, obs, act)
        state, obs = step.state, step.obs
    step = copies.step(state, obs, act)
    terms, before, after = step.terms, state[:, 1], step.state[:, 1]
    np.testing.assert_allclose(terms["reward_forward"], (after - before) / 0.05)
    np.testing.assert_allclose(terms["reward_control"], -4.0)
    np.testing.assert_allclose(terms["reward_survive"], 1.0)
    assert (terms["reward_contact"] <= 0.0).all()
    assert (terms["reward_contact"] < 0.0).any()
    total = sum(term for name, term in terms.items() if name.startswith("reward"))
    np.testing.assert_allclose(step.reward, total)


def test_the_quaternion_has_length_one_after_a_step_but_as_in_gymnasium_not_at_the_start():
    simulator = Simulator(TASK, 3, seed=0)
    assert (np.abs(np.linalg.norm(simulator.obs[:, 1:5], axis=1) - 1.0) > 1e-3).all()
    theirs, _ = gymnasium.make("Ant-v5").reset(seed=0)
    assert abs(np.linalg.norm(theirs[1:5]) - 1.0) > 1e-3
    step = simulator.step(np.zeros((3, 8)))
    np.testing.assert_allclose(np.linalg.norm(step.next_obs[:, 1:5], axis=1), 1.0, atol=1e-12)


def test_starts_near_the_origin_with_still_walls():
    states = starts(300)
    ant = states[:, 1:16] - MODEL.qpos0[:15]
    assert np.abs(ant).max() < 0.1
    np.testing.assert_allclose(ant.std(axis=0), 0.2 / np.sqrt(12), rtol=0.15)
    np.testing.assert_allclose(states[:, 58:72].std(axis=0), 0.1, rtol=0.2)
    np.testing.assert_array_equal(states[:, 16:58], np.tile(MODEL.qpos0[15:], (300, 1)))
    assert (states[:, 72:108] == 0.0).all()
