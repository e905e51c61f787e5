"""The one rule that says which children are in the tree of a class."""

from typing import Any

from keras import ops

from tfcaps.ops import dequantize, quantize

# A coupling that exceeds the threshold by a smaller share of it does so by
# float32's rounding alone.
TREE_MARGIN = 1e-5


def in_tree(couplings: Any, threshold: float) -> Any:
    """Tells which couplings with a tree exceed the threshold, but for rounding.

    They are a tensor or an array of any shape, in float32 or finer.
    """
    return couplings > threshold * (1.0 + TREE_MARGIN)


def tree_threshold(layer: Any) -> float:
    """Returns the coupling that a child must exceed to be in a tree.

    That is the layer's, or its rounded value if the layer has levels and that
    is larger: 1/16 becomes 0.1 with eleven levels, and still means nothing.
    """
    threshold = float(layer.tree_threshold)
    if layer.levels is not None:
        settings: Any = {"levels": layer.levels, "mode": layer.mode}
        codes = quantize(ops.convert_to_tensor([threshold]), **settings)
        rounded = ops.convert_to_numpy(dequantize(codes, **settings))
        threshold = max(threshold, float(rounded[0]))
    return threshold
