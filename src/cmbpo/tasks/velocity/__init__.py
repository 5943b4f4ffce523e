"""Gymnasium's robots with a limit on their speed, as in Safety-Gymnasium."""
