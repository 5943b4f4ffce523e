"""Panels of curves, drawn as SVG for the page and as PNG and PDF for a paper."""
