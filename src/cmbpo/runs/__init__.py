"""A run's folder: settings, records and checkpoints, and how to read them back."""
