"""The paper's tables, ablations and other experiments, run and written."""
