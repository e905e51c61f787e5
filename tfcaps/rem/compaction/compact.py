"""Models without the parts that pruning has left without effect."""

import keras

from tfcaps import graphs
from tfcaps.finite import check_weights
from tfcaps.rem.compaction.units import Units


def compact(model: keras.Model) -> keras.Model:
    """Returns a smaller model with the same outputs.

    Units that pruning has left without effect go, as those that
    `prune_structured` masks:

    - a channel, a type of capsules or a hidden capsule that nothing reads, such
      as a type of which every child has a transformation of zero, below a layer
      whose routing ignores it (dynamic, uniform, self-attention, and
      scaled-distance routing over `"capsule"`);
    - one that is 0 in every image, as all weights that make it are. A hidden
      capsule still competes, as one of the routing's `silent_parents`; with EM
      routing see `EMRouting.absent`;
    - a channel whose own kernel is zero: what it adds to the next convolution
      goes into that one's bias, if it has one and no padding.

    What a sum adds up leaves together. Outputs are the same but for rounding,
    since sums have fewer terms. Layers of kinds unknown here stay, and so does
    whatever feeds them. Single zeros save nothing.

    Args:
        model: A functional or sequential model. It is not changed.

    Returns:
        A `keras.Model` with the same name, inputs and outputs, and weights of
        its own. Trees have the children that are left. Of a model that
        `add_couplings` made it is the network in it.

    Raises:
        ValueError: If the model is neither functional nor built, a weight is
            not finite, or as in `quantize_couplings`.

    Example:

    >>> from tfcaps.models import dr_capsnet
    >>> model = dr_capsnet((17, 17, 1), 2, filters=4, primary_types=3)
    >>> kernel = model.get_layer("conv").kernel
    >>> _ = kernel.assign(kernel.numpy() * [1, 0, 1, 1])
    >>> compact(model).get_layer("conv").filters
    3
    """
    graphs.check_unquantized(model)
    graphs.keep_pruned(model)
    check_weights(model.weights)
    given = graphs.without_couplings(model)
    model = graphs.functional(given)
    units = Units(model)
    values = units.constants()
    keep = units.needed(values)[units.groups]
    rebuilt = {
        id(call.layer): call.rebuilt(keep, values) for call in units.calls
    }
    copy = graphs.clone_with_call(
        model,
        lambda layer, *args, **kwargs: rebuilt[id(layer)][0](*args, **kwargs),
    )
    for layer, weights in rebuilt.values():
        if weights:
            layer.set_weights(weights)
    return graphs.of_same_kind(given, copy.input, copy.output)
