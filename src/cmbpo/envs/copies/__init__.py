"""Copies of the user's environment: in line or in processes, and supervised."""
