"""Real data: how a policy collects them, what they cost, and where they are kept."""
