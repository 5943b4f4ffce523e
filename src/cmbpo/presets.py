"""The settings each task and algorithm starts from, with the source of each number.

`paper`: the hyperparameter table of appendix B (CMBPO) and the settings of the published baseline
runs, with only the repairs without which the printed algorithm does not run (docs/deviations.md).
`default`: what came closest to holding the limit; docs/results.md has the measurements.
"""

from dataclasses import replace

from cmbpo.settings import (
    AdvantageSettings,
    ClippedSettings,
    ConstraintSettings,
    CriticSettings,
    LagrangianSettings,
    MixingSettings,
    PolicySettings,
    RolloutSettings,
    TrainSettings,
    TrustRegionSettings,
)

TASKS = ("AntSafe", "HalfCheetahSafe", "AntCircle", "PointCircle")
ALGORITHMS = ("cmbpo", "cpo", "trpo-lag", "ppo-lag", "trpo")
PRESETS = ("default", "paper")

_SPELLINGS = {"trpolag": "trpo-lag", "ppolag": "ppo-lag"}


def algorithm_name(spelling: str) -> str:
    """The one name of an algorithm: `CPO`, `TRPOLag`, `trpo_lag` … are all understood."""
    flat = spelling.lower().replace("-", "").replace("_", "")
    name = _SPELLINGS.get(flat, flat)
    if name not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {spelling!r}; there are {', '.join(ALGORITHMS)}")
    return name


def task_name(env_id: str) -> str:
    """The name of a task of this package: from `AntSafe`, `AntSafe-v0` or `cmbpo/AntSafe-v0`."""
    name = env_id.removeprefix("cmbpo/").removesuffix("-v0")
    if name not in TASKS:
        raise ValueError(f"unknown task {env_id!r}; there are {', '.join(TASKS)}")
    return name


def is_ours(env_id: str) -> bool:
    """Whether this names a task of this package, and not an environment of the user's own."""
    return env_id.removeprefix("cmbpo/").removesuffix("-v0") in TASKS


def preset(algo: str, env_id: str, name: str = "default") -> TrainSettings:
    """The settings that a run of `algo` on `env_id` starts from."""
    algo = algorithm_name(algo)
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}; there are {', '.join(PRESETS)}")
    make = _CMBPO[name] if algo == "cmbpo" else _BASELINE[name]
    if not is_ours(env_id):
        return _own(replace(make("HalfCheetahSafe"), algo=algo, env_id=env_id, preset=name))
    task = task_name(env_id)
    settings = replace(make(task), algo=algo, env_id=f"{task}-v0", preset=name)
    # TRPO heeds no cost: its episodes would never grow.
    return replace(settings, first_episode=None) if algo == "trpo" else settings


def _own(settings: TrainSettings) -> TrainSettings:
    """The settings of HalfCheetahSafe without what is known of that task alone.

    Observations may have any units and costs any size. Copies are whole environments of the user's,
    so there are few.
    """
    general = replace(
        settings,
        num_envs=20,
        initial_steps=10_000,
        policy=replace(settings.policy, normalise=True),
        critic=replace(settings.critic, bound_cost=False),
    )
    if general.algo != "cmbpo" or general.preset == "paper":
        return general
    return replace(
        general,
        total_steps=1_000_000,
        policy=replace(general.policy, min_std=0.0),
        # A hopper with γ = 0.99 falls after 230 steps, 370 in all; with 0.995 it earns 1650.
        advantage=replace(general.advantage, discount=0.995),
        mixing=replace(general.mixing, min_real=1000, max_real=1000),
        constraint=replace(general.constraint, source="real", target=0.7, time_constant=4.0),
        trust_region=replace(general.trust_region, cost_gain=1.0),
    )


# Appendix B: α₀ and h₀ of the three tasks. PointCircle is ours.
_FIRST_ALPHA = {"AntSafe": 0.4, "HalfCheetahSafe": 0.3, "AntCircle": 0.2, "PointCircle": 0.3}
_FIRST_HORIZON = {"AntSafe": 5, "HalfCheetahSafe": 5, "AntCircle": 7, "PointCircle": 5}

# The authors' code: longest rollouts of 30 (ants) and 25 (cheetah) steps, of which the last is cut.
_CODED_CAP = {"AntSafe": 29, "HalfCheetahSafe": 24, "AntCircle": 29, "PointCircle": 24}


def _cmbpo_paper(task: str) -> TrainSettings:
    """Section IV as printed. PointCircle, which the paper does not have, is sized for a laptop."""
    settings = TrainSettings(
        total_steps=5_000_000,
        policy=PolicySettings(hidden=(256, 256)),
        critic=CriticSettings(hidden=(128, 128), learning_rate=3e-4, batch_size=2048, epochs=8),
        advantage=AdvantageSettings(discount=0.99, lam=0.95, cost_discount=0.97, cost_lam=0.5),
        rollout=RolloutSettings(
            cut="trajectory",
            first_horizon=_FIRST_HORIZON[task],
            max_horizon=_CODED_CAP[task],
            temperature=2.0,
            cost_over_members=False,
        ),
        mixing=MixingSettings(
            rule="paper", first_alpha=_FIRST_ALPHA[task], min_real=1000, max_real=50_000
        ),
        constraint=ConstraintSettings(source="real", time_constant=4.0, target=1.0),
        trust_region=TrustRegionSettings(step="cpo", max_kl=0.01, cg_iterations=10, cg_damping=0.1),
    )
    return _small(settings) if task == "PointCircle" else settings


def _cmbpo_default(task: str) -> TrainSettings:
    """What came closest to holding the limit, built on the paper's numbers."""
    paper = _cmbpo_paper(task)
    ant, cheetah = task.startswith("Ant"), task == "HalfCheetahSafe"
    settings = replace(
        paper,
        total_steps=600_000 if cheetah else 1_000_000,
        policy=replace(
            paper.policy,
            last_layer_scale=0.01,
            # With mean 0 and σ = 0.6 an ant falls and one cheetah in seven is on its back after
            # 600 steps; at σ = 0.14 the ant stands, at 0.37 the cheetah does.
            log_std=-2.5 if task == "AntSafe" else -1.0,
            min_std=0.25 if cheetah else 0.0,
            normalise=cheetah,
        ),
        advantage=replace(paper.advantage, terminal_cost_value=10.0 if ant else None),
        dynamics=replace(paper.dynamics, fit_every=2000, epochs=5),
        rollout=replace(
            paper.rollout,
            cut="batch",
            quantile=0.75,
            min_horizon=20,
            max_horizon=40,
            temperature=20.0,
            cost_over_members=True,
        ),
        mixing=replace(paper.mixing, min_real=1000, max_real=1000),
        constraint=replace(paper.constraint, target=0.7, time_constant=4.0),
        trust_region=replace(paper.trust_region, step="barrier"),
    )
    adapted = {
        "HalfCheetahSafe": _cheetah,
        "AntSafe": _ant_safe,
        "AntCircle": _ant_circle,
        "PointCircle": _point_circle,
    }
    return adapted[task](settings)


def _cheetah(settings: TrainSettings) -> TrainSettings:
    """The obstacle is seen coming for a hundred steps: a long view of cost and a short memory.

    The imagined cost rises four to six updates before the real one. Where J_c is the real one
    alone and the barrier's gain 1, 26 % of the steps lie in windows above the limit; with the
    larger of the two and gain 2, 5 %.
    """
    return replace(
        settings,
        advantage=replace(settings.advantage, cost_discount=0.99, cost_lam=0.9),
        constraint=replace(settings.constraint, source="larger", target=0.4, time_constant=2.0),
        trust_region=replace(settings.trust_region, hysteresis=1.0, cost_gain=2.0),
    )


def _ant_safe(settings: TrainSettings) -> TrainSettings:
    """The cheetah's view of cost, and of the reward one that is long enough to regret a fall.

    With γ = 0.99 half of the ants run fast and fall: 1670 after 656,000 steps of one seed, with a
    third of each episode missing. With 0.995 the same seed has 2550. In whole episodes an ant that
    cannot walk yet creeps to a wall and stays there: the first 200,000 steps then cost 4300 to
    10,900, with short episodes first, σ = 0.08 and KL 0.02 1000 to 1700. Where only the chosen
    network ends a trajectory, imagined ants fall three to five times more rarely than real ones;
    where any may, real ones fall 0.1 to 0.5 times in 1000 steps instead of 0.1 to 0.7.
    """
    return replace(
        settings,
        total_steps=1_500_000,
        first_episode=100,
        advantage=replace(
            settings.advantage,
            discount=0.995,
            cost_discount=0.99,
            cost_lam=0.9,
            terminal_cost_value=30.0,
        ),
        rollout=replace(settings.rollout, end_over_members=True),
        constraint=replace(settings.constraint, target=0.5, time_constant=2.0),
        trust_region=replace(settings.trust_region, max_kl=0.02, hysteresis=1.0),
    )


def _ant_circle(settings: TrainSettings) -> TrainSettings:
    """The lane's edge is seconds away and the circle further: a long view of both, longer steps.

    With γ = 0.99, KL 0.01 and plain units the return was 90 after 500,000 steps, with γ = 0.995, KL
    0.02 and standard units 1200. Whole episodes cost 18,000 until a return of 2000 within the
    limit; with short ones first, in units that follow the data (those of the first episodes are too
    small for the circle) and a view of cost of 200 steps, it is 8,100.
    """
    return replace(
        settings,
        total_steps=2_000_000,
        first_episode=100,
        policy=replace(settings.policy, normalise=True, adapt_units=True),
        advantage=replace(settings.advantage, discount=0.995, cost_discount=0.995, cost_lam=0.95),
        mixing=replace(settings.mixing, min_real=2000, max_real=2000),
        constraint=replace(settings.constraint, target=0.5, time_constant=1.0),
        trust_region=replace(settings.trust_region, max_kl=0.02, hysteresis=1.0, cost_gain=2.0),
    )


def _small(settings: TrainSettings) -> TrainSettings:
    """The same algorithm with networks and batches that two CPU cores train in minutes."""
    return replace(
        settings,
        total_steps=200_000,
        num_envs=40,
        batch_size=6_000,
        initial_steps=3_000,
        # A fit passes over the whole archive: this much keeps the states of the last ten policies.
        archive_size=20_000,
        policy=replace(settings.policy, hidden=(64, 64)),
        critic=replace(
            settings.critic,
            hidden=(64, 64),
            members=1,
            learning_rate=1e-3,
            batch_size=500,
            epochs=4,
        ),
        dynamics=replace(settings.dynamics, hidden=(64, 64), members=5, elites=3, batch_size=512),
        rollout=replace(settings.rollout, lanes=100, probe=50),
        mixing=replace(settings.mixing, min_real=500, max_real=5_000),
        trust_region=replace(settings.trust_region, fisher_share=0.2),
    )


def _point_circle(settings: TrainSettings) -> TrainSettings:
    """What learns the orbit in about 250 updates; real steps are cheap here, updates are not."""
    return replace(
        settings,
        total_steps=500_000,
        # Without a floor σ falls to 0.08, and the policy then changes slowly.
        policy=replace(settings.policy, min_std=0.15),
        # Half an orbit is 40 steps, longer than 0.97 and 0.5 look ahead: with those the first
        # 65,000 steps of one seed cost 8200, with these 3800.
        advantage=replace(settings.advantage, cost_discount=0.99, cost_lam=0.9),
        dynamics=replace(settings.dynamics, epochs=2, fit_every=10_000),
        # 40 copies of 50 steps measure J_c well enough that it need not be averaged over updates,
        # and a recovery may end as soon as the cost is back at the target. With an average over 8
        # updates a recovery goes on for 25 updates after the cost is gone, until the point rests.
        mixing=replace(settings.mixing, min_real=2_000, max_real=2_000),
        constraint=replace(settings.constraint, target=0.5, time_constant=1.0),
        trust_region=replace(settings.trust_region, max_kl=0.02, hysteresis=1.0),
    )


def _baseline_paper(task: str) -> TrainSettings:
    """The published baselines: 50,000 steps an update, 256 × 256, library defaults otherwise."""
    return TrainSettings(
        total_steps=10_000_000 if task != "PointCircle" else 1_000_000,
        num_envs=50,
        batch_size=50_000,
        policy=PolicySettings(hidden=(256, 256)),
        critic=CriticSettings(
            hidden=(256, 256), members=1, learning_rate=1e-3, batch_size=50_000, epochs=80
        ),
        advantage=AdvantageSettings(discount=0.99, lam=0.97, cost_discount=0.99, cost_lam=0.97),
        constraint=ConstraintSettings(source="real", time_constant=0.0, target=1.0),
        trust_region=TrustRegionSettings(step="cpo"),
        clipped=ClippedSettings(clip=0.2, learning_rate=3e-4, iterations=80, stop_kl=0.012),
    )


def _baseline_default(task: str) -> TrainSettings:
    """Learning that takes no longer than the simulation it learns from, on two cores.

    Networks of 64 × 64, which OmniSafe also uses, and conjugate gradients on a tenth of the states
    take 0.4 s of CPU time for 20,000 steps; 256 × 256, critics of 128 × 128 fitted in eight passes,
    and all states take 7 s. The numbers below are of single runs with seeds from 100 on.
    """
    paper, ant = _baseline_paper(task), task.startswith("Ant")
    settings = replace(
        paper,
        num_envs=100,
        batch_size=20_000,
        policy=PolicySettings(
            hidden=(64, 64),
            # Speeds have other units than angles: after 600,000 steps of CPO on HalfCheetahSafe the
            # return is 600 in standard units, −61 without. An ant that begins to walk leaves the
            # units of one that stands.
            normalise=not ant,
            last_layer_scale=0.01 if ant else 1.0,
            log_std=-2.0 if task == "AntSafe" else -0.5,
        ),
        critic=CriticSettings(
            hidden=(64, 64), members=1, learning_rate=1e-3, batch_size=1000, epochs=5
        ),
        # With λ_c = 0.97 noise hides the gradient of cost: steps on HalfCheetahSafe that promised
        # −25 per episode changed nothing; with 0.5 they keep about what they promise.
        # CPO on AntSafe earns 1858 after 5,600,000 steps with γ = 0.995 (seed 100), 1574 with 0.99.
        advantage=replace(
            paper.advantage, discount=0.995 if task == "AntSafe" else 0.99, cost_lam=0.5
        ),
        # The cost swings around the aim: its mean over the last 30 of 120 to 130 updates of CPO on
        # HalfCheetahSafe was 14.3 (seed 101) with the limit itself, 9.6 (seed 102) with this.
        constraint=replace(paper.constraint, target=0.7),
        trust_region=replace(paper.trust_region, fisher_share=0.1),
        # Adam's multiplier fades while nothing costs; PPO-L on HalfCheetahSafe then stays at a cost
        # of 108 to 118. After 3,000,000 steps the controller had spent 18,600 in all (seed 100).
        lagrangian=LagrangianSettings(rule="pid"),
        # One step of Adam on the whole batch goes beyond `stop_kl`, small ones stop near it. After
        # 600,000 steps of PPO-L on HalfCheetahSafe: 629, and 144 with ten passes at 3e-4.
        clipped=replace(
            paper.clipped, learning_rate=1e-3, iterations=6, minibatches=10, stop_kl=0.02
        ),
    )
    if task == "AntCircle":
        return _far_circle(settings)
    return _calm_point(settings) if task == "PointCircle" else settings


def _far_circle(settings: TrainSettings) -> TrainSettings:
    """Far-sighted, with longer steps: TRPO earns 24 in 3,000,000 steps otherwise, 2,570 with these.

    In the units of its first steps CPO does not reach 2000 within the limit in 10,000,000. In units
    that follow the data it does after 8,400,000; with short episodes first it pays less on the way,
    132,000 and 142,000 in 10,000,000 instead of 157,000.
    """
    return replace(
        settings,
        first_episode=100,
        policy=replace(settings.policy, log_std=-1.0, normalise=True, adapt_units=True),
        advantage=replace(settings.advantage, discount=0.995),
        trust_region=replace(settings.trust_region, max_kl=0.02),
    )


def _calm_point(settings: TrainSettings) -> TrainSettings:
    """More and longer steps of the policy, from rest: the first policy costs 470 otherwise.

    CPO's return and cost after 600,000 steps are 1696 and 11, with the settings of the robots 40
    and 7. Updates from 10,000 samples alone reach 1201 and 17 after 500,000.
    """
    return replace(
        settings,
        batch_size=5_000,
        initial_steps=5_000,
        policy=replace(settings.policy, log_std=-1.0, last_layer_scale=0.01),
        advantage=replace(settings.advantage, cost_lam=0.9),
        trust_region=replace(settings.trust_region, max_kl=0.02),
        # PPO-L after 600,000 steps: 1462 and 1483 with four passes, 1367 and 1515 with six.
        clipped=replace(settings.clipped, iterations=4),
    )


_CMBPO = {"paper": _cmbpo_paper, "default": _cmbpo_default}
_BASELINE = {"paper": _baseline_paper, "default": _baseline_default}
