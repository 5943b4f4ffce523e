"""The learned world: ensemble, disagreement, learned cost, imagined trajectories, α(π)."""
