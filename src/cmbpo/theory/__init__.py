"""Boundary 4.1: the bound itself, how tight it is, and its practical form in every run."""
