"""The numbers of CPO, TRPO-L, PPO-L and TRPO: the published runs', and ones that learn on a CPU."""

PAPER = {
    "total_steps": 10_000_000,
    "num_envs": 50,
    "batch_size": 50_000,
    "policy.hidden": (256, 256),
    "critic.hidden": (256, 256),
    "critic.members": 1,
    "critic.learning_rate": 1e-3,
    "critic.batch_size": 50_000,
    "critic.epochs": 80,
    "advantage.discount": 0.99,
    "advantage.lam": 0.97,
    "advantage.cost_discount": 0.99,
    "advantage.cost_lam": 0.97,
    "cost_estimate.source": "real",
    "cost_estimate.time_constant": 0.0,
    "cost_estimate.target": 1.0,
    "trust_region.step": "cpo",
    "clipped.learning_rate": 3e-4,
    "clipped.iterations": 80,
    "clipped.stop_kl": 0.012,
}
"""The published baselines: 50,000 steps an update, 256 × 256, library defaults otherwise."""

PAPER_EXCEPTIONS = {"PointCircle": {"total_steps": 1_000_000}}

# Networks of 64 × 64, which OmniSafe also uses, and conjugate gradients on a tenth of the states
# take 0.4 s of CPU time for 20,000 steps; 256 × 256, critics of 128 × 128 fitted in eight passes,
# and all states take 7 s. The numbers below are of single runs with seeds from 100 on.
DEFAULT = {
    **PAPER,
    "num_envs": 100,
    "batch_size": 20_000,
    "policy.hidden": (64, 64),
    # Speeds have other units than angles: after 600,000 steps of CPO on HalfCheetahSafe the return
    # is 600 in standard units, −61 without.
    "policy.normalise": True,
    "critic.hidden": (64, 64),
    "critic.batch_size": 1000,
    "critic.epochs": 5,
    # With λ_c = 0.97 noise hides the gradient of cost: steps on HalfCheetahSafe that promised −25
    # per episode changed nothing; with 0.5 they keep about what they promise.
    "advantage.cost_lam": 0.5,
    # The cost swings around the aim: its mean over the last 30 of 120 to 130 updates of CPO on
    # HalfCheetahSafe was 14.3 (seed 101) with the limit itself, 9.6 (seed 102) with this.
    "cost_estimate.target": 0.7,
    "trust_region.fisher_share": 0.1,
    # Adam's multiplier fades while nothing costs; PPO-L on HalfCheetahSafe then stays at a cost of
    # 108 to 118. After 3,000,000 steps the controller had spent 18,600 in all (seed 100).
    "lagrangian.rule": "pid",
    # What a policy costs follows λ with a delay, as an integral does: without a share that answers
    # at once, an integral on an integral swings.
    "lagrangian.gains": (1.0, 0.05, 0.0),
    # One step of Adam on the whole batch goes beyond `stop_kl`, small ones stop near it. After
    # 600,000 steps of PPO-L on HalfCheetahSafe: 629, and 144 with ten passes at 3e-4.
    "clipped.learning_rate": 1e-3,
    "clipped.iterations": 6,
    "clipped.minibatches": 10,
    "clipped.stop_kl": 0.02,
}
"""Learning that takes no longer than the simulation it learns from, on two cores."""

DEFAULT_EXCEPTIONS = {
    "AntSafe": {
        # An ant that begins to walk leaves the units of one that stands.
        "policy.normalise": False,
        "policy.last_layer_scale": 0.01,
        "policy.log_std": -2.0,
        # CPO earns 1858 after 5,600,000 steps with γ = 0.995 (seed 100), 1574 with 0.99.
        "advantage.discount": 0.995,
    },
    # Far-sighted, with longer steps: TRPO earns 24 in 3,000,000 steps otherwise, 2,570 with these.
    # In the units of its first steps CPO does not reach 2000 within the limit in 10,000,000. In
    # units that follow the data it does after 8,400,000; with short episodes first it pays less on
    # the way, 132,000 and 142,000 in 10,000,000 instead of 157,000.
    "AntCircle": {
        "first_episode": 100,
        "policy.last_layer_scale": 0.01,
        "policy.log_std": -1.0,
        "policy.adapt_units": True,
        "advantage.discount": 0.995,
        "trust_region.max_kl": 0.02,
    },
    # More and longer steps of the policy, from rest: the first policy costs 470 otherwise. CPO's
    # return and cost after 600,000 steps are 1696 and 11, with the settings of the robots 40 and 7.
    # Updates from 10,000 samples alone reach 1201 and 17 after 500,000.
    "PointCircle": {
        **PAPER_EXCEPTIONS["PointCircle"],
        "batch_size": 5_000,
        "initial_steps": 5_000,
        "policy.log_std": -1.0,
        "policy.last_layer_scale": 0.01,
        "advantage.cost_lam": 0.9,
        "trust_region.max_kl": 0.02,
        # PPO-L after 600,000 steps: 1462 and 1483 with four passes, 1367 and 1515 with six.
        "clipped.iterations": 4,
    },
}

# Small batches and many updates: 50 updates of 20,000 steps left CPO's ant with a return of 6 after
# 1,000,000 steps.
CUSTOM = {
    "batch_size": 4_000,
    "policy.log_std": -1.0,
    "policy.last_layer_scale": 0.01,
    # A robot that begins to walk leaves the units of one that stands or falls.
    "policy.adapt_units": True,
    # 200 gradient steps an update, at 250 updates in 1,000,000 steps.
    "critic.batch_size": 200,
    "critic.epochs": 10,
    "advantage.discount": 0.995,
    "advantage.lam": 0.95,
    "advantage.cost_lam": 0.9,
    "trust_region.max_kl": 0.02,
    "trust_region.fisher_share": 0.25,
    "clipped.iterations": 10,
    "clipped.minibatches": 16,
}
"""Tasks without settings of their own: the velocity tasks and environments of the user's."""

PRESETS = {
    "default": (DEFAULT, DEFAULT_EXCEPTIONS, CUSTOM),
    "paper": (PAPER, PAPER_EXCEPTIONS, {}),
}
"""By name: the table for every robot, what single tasks change in it, and what one's own does."""
