"""Constrained model-based policy optimisation: safe continuous control from few real samples."""

__version__ = "0.1.0"
