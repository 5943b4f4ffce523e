"""The mathematics of a policy update: advantages, critics, surrogate, trust region, multipliers."""
