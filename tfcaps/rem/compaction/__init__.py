"""Models without the units that pruning left unused."""
