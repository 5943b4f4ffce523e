"""The numbers of SAC-L."""

DEFAULT = {
    "total_steps": 1_000_000,
    "num_envs": 20,
    "batch_size": 1_000,
    "initial_steps": 10_000,
    # Each checkpoint holds the replay buffer.
    "checkpoint_every": 50,
    "policy.hidden": (256, 256),
    # tanh of N(0, 1): nearly uniform, as SAC begins.
    "policy.log_std": 0.0,
    "policy.last_layer_scale": 0.01,
    "critic.hidden": (256, 256),
    "advantage.discount": 0.99,
    "advantage.cost_discount": 0.99,
    "cost_estimate.time_constant": 3.0,
    "cost_estimate.target": 0.8,
    # Of (J_c − d)/d, once in 1000 steps. On Gymnasium's HalfCheetah with a limit on its speed (seed
    # 0, networks of 128 × 128) the cost went up to 100 when it first ran that fast, was below the
    # limit 10,000 steps later and stayed near its aim.
    "lagrangian.gains": (0.5, 0.05, 0.0),
}
"""Networks, step sizes and discounts that SAC is published with, for every robot."""

PRESETS = {"default": (DEFAULT, {}, {}), "paper": (DEFAULT, {}, {})}
"""By name: the table for every robot, what single tasks change in it, and what one's own does. The
paper has no SAC-L: both are the same."""
