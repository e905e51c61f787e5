"""Measures of parse trees, and of whether a network uses them."""
