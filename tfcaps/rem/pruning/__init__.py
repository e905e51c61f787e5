"""Pruning of weights while a model trains."""
