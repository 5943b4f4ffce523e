"""Measurements of speed, each printed as a table and, where asked, written as JSON."""
