"""Tests of tfcaps, training and export."""
