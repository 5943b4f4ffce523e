"""Environments of the user's own as tasks, and the simulator that steps copies of any task."""
