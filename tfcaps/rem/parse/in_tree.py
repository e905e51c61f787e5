"""The one rule that says which children are in the tree of a class."""

from typing import Any

from keras import ops

# A coupling that exceeds the threshold by a smaller share of it does so by
# float32's rounding alone.
TREE_MARGIN = 1e-5


def in_tree(couplings: Any, threshold: float) -> Any:
    """Tells which couplings exceed the threshold, but for rounding."""
    return couplings > threshold * (1.0 + TREE_MARGIN)


def tree_threshold(routing: Any, parents: int) -> float:
    """Returns the coupling that a child must exceed to be in a tree.

    That is the routing's, or its rounded value if there are levels and that is
    larger: 1/16 becomes 0.1 with eleven levels, and still means nothing.
    """
    threshold = routing.tree_threshold(parents)
    if routing.levels is not None:
        rounded = routing.rounded(ops.convert_to_tensor([threshold], "float32"))
        threshold = max(threshold, float(ops.convert_to_numpy(rounded)[0]))
    return threshold
