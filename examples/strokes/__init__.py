"""Strokes, components and characters: trees of two layers."""
