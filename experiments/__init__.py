"""The paper's tables, ablations and comparisons of many runs."""
