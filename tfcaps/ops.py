"""Numerics shared by all layers: capsule length, squash and the quantiser.

Axis letters used in every einsum and shape comment of the package:

| letter | axis |
|---|---|
| `b` | batch |
| `h w` | rows and columns of a spatial layer |
| `t` | capsule type at one position |
| `i` | child capsule; a flattened spatial layer runs row, column, type |
| `j` | parent capsule |
| `k` | component of a child |
| `d` | component of a parent |

Votes are always `[b, i, j, d]`, couplings always `[b, i, j]`.
"""

import math
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any

import keras
from keras import ops
from numpy.typing import NDArray

# A tensor of the active backend, or anything that `keras.ops` converts to one.
Tensor = Any
# Of NumPy, of numbers of any type.
Array = NDArray[Any]

# By how much the numbers of soft labels may miss a sum of 1, of bfloat16 too.
SOFT_SUM_ERROR = 0.01

# One axis or several.
Axes = int | tuple[int, ...]


def as_float32(tensor: Tensor) -> Tensor:
    """Casts float16 and bfloat16 to float32; leaves wider floats alone."""
    tensor = ops.convert_to_tensor(tensor)
    return tensor if tensor.dtype == "float64" else ops.cast(tensor, "float32")


def _as_floats(vectors: Tensor) -> Tensor:
    """Returns a tensor of its own float type, integers as float32."""
    vectors = ops.convert_to_tensor(vectors)
    is_float = keras.backend.is_float_dtype(vectors.dtype)
    return vectors if is_float else ops.cast(vectors, "float32")


def length(
    vectors: Tensor, *, axis: Axes = -1, keepdims: bool = False
) -> Tensor:
    """Returns the Euclidean length over axes, with a zero gradient at zero.

    `keras.ops.norm` has a NaN gradient at the zero vector, which pruning makes
    common. The arithmetic is float32 also for half-precision input, and the
    result of the type of `vectors`.
    """
    vectors = _as_floats(vectors)
    square = ops.square(as_float32(vectors))
    square = ops.sum(square, axis=axis, keepdims=keepdims)
    return ops.cast(square_root(square), vectors.dtype)


def square_root(square: Tensor) -> Tensor:
    """Returns the root, with a zero gradient at zero instead of infinity.

    What is no number stays none: a network that diverged must not look silent.
    """
    none = square <= 0
    root = ops.sqrt(ops.where(none, ops.ones_like(square), square))
    return ops.where(none, ops.zeros_like(root), root)


def squash(
    vectors: Tensor, *, axis: Axes = -1, epsilon: float = 1e-7
) -> Tensor:
    """Shrinks vectors to a length below one and keeps their direction.

    `squash(s) = |s|^2 / (1 + |s|^2) * s / |s|`, with the length over `axis`.
    Under the root stands `epsilon` more, so that value and gradient are finite
    at zero. Shape and type stay.

    Example:

    >>> [round(float(x), 6) for x in squash([3.0, 4.0])]
    [0.576923, 0.769231]

    References:
        - Sabour, Frosst, Hinton, 2017, https://arxiv.org/abs/1710.09829, eq. 1
    """
    vectors = _as_floats(vectors)
    wide = as_float32(vectors)
    square = ops.sum(ops.square(wide), axis=axis, keepdims=True)
    # One factor for each vector. (A product of the vectors with the root alone
    # becomes an operation of TensorFlow Lite that takes at most four axes.)
    scale = square / (1.0 + square) * ops.rsqrt(square + epsilon)
    return ops.cast(scale * wide, vectors.dtype)


def efficient_squash(vectors: Tensor, *, axis: Axes = -1) -> Tensor:
    """Shrinks vectors to a length below one, hardly those near zero.

    `squash(s) = (1 - exp(-|s|)) * s / |s|`

    Where the squash of dynamic routing makes a short vector of length n about
    n^2 long, this one leaves it about n long, so its gradient does not vanish.
    Arguments and result are those of `squash`.

    Example:

    >>> [round(float(x), 6) for x in efficient_squash([3.0, 4.0])]
    [0.595957, 0.79461]

    References:
        - Mazzia, Salvetti, Chiaberge, 2021, https://arxiv.org/abs/2101.12491
    """
    vectors = _as_floats(vectors)
    wide = as_float32(vectors)
    norm = length(wide, axis=axis, keepdims=True)
    positive = norm > 0
    divisor = ops.where(positive, norm, ops.ones_like(norm))
    # 1 - exp(-n), exact also for small n, without expm1, which ONNX lacks.
    shrunk = ops.tanh(0.5 * divisor) * (1.0 + ops.exp(-divisor))
    scale = ops.where(positive, shrunk / divisor, ops.ones_like(norm))
    return ops.cast(scale * wide, vectors.dtype)


def softmax(logits: Tensor, silent: int = 0) -> Tensor:
    """Returns the softmax of logits `[..., j]`, also of a single item.

    So many `silent` items of logit 0 compete, and their shares are left out.
    """
    if silent:
        others = ops.full_like(logits[..., :1], math.log(silent))
        shares = ops.softmax(ops.concatenate([logits, others], axis=-1))
        # The gradient of a slice is slow.
        return ops.split(shares, [logits.shape[-1]], axis=-1)[0]
    if logits.shape[-1] == 1:
        return ops.ones_like(logits)
    return ops.softmax(logits, axis=-1)


def longest(lengths: Tensor) -> Tensor:
    """Returns the index `[...]` of the longest of `[..., j]`, int32.

    Of equal ones the first. `keras.ops.argmax` of floats looks at their bits,
    to tell 0.0 from -0.0, which ONNX, OpenVINO and LiteRT cannot do.
    """
    most = ops.max(lengths, axis=-1, keepdims=True)
    is_longest = ops.cast(lengths >= most, "int32")
    return ops.cast(ops.argmax(is_longest, axis=-1), "int32")


# What layers take as `squash`.
SQUASHES: dict[str, Callable[[Tensor], Tensor]] = {
    "hinton": squash,
    "efficient": efficient_squash,
}


def check_one_of(options: Iterable[Any], **argument: Any) -> None:
    """Raises `ValueError` unless an argument is one of the options."""
    [value] = argument.values()
    options = tuple(options)
    check_that(value in options, f"be one of {options}", **argument)


def parts_of(count: int, size: int) -> list[slice]:
    """Returns slices of so many rows, which together are all."""
    return [slice(start, start + size) for start in range(0, count, size)]


def check_that(holds: Any, must: str, **arguments: Any) -> None:
    """Raises `ValueError` unless it holds: what arguments must, and are."""
    if not holds:
        names = " and ".join(f"`{name}`" for name in arguments)
        given = ", ".join(f"{n}={value!r}" for n, value in arguments.items())
        raise ValueError(f"{names} must {must}. Received: {given}.")


def class_targets(labels: Tensor, num_classes: int, dtype: str) -> Tensor:
    """Returns targets `[b, j]` of such, or of class indices `[b]` or `[b, 1]`.

    An index outside `[0, j)` stands for no class. With one class `[b]` or
    `[b, 1]` are targets too: 1 where it is there, 0 where not.

    Raises:
        ValueError: If the shape is none of these.
    """
    labels = ops.convert_to_tensor(labels)
    shape = tuple(labels.shape)
    if num_classes == 1 and (len(shape) == 1 or shape[1:] == (1,)):
        there = ops.reshape(ops.cast(labels, dtype), (-1, 1))
        return ops.clip(there, 0.0, 1.0)
    if len(shape) == 2 and shape[-1] in (num_classes, None):
        return ops.cast(labels, dtype)
    if len(shape) == 2 and shape[-1] == 1:
        labels = ops.squeeze(labels, axis=-1)
    if len(labels.shape) == 1:
        return ops.one_hot(ops.cast(labels, "int32"), num_classes, dtype=dtype)
    raise ValueError(
        "Targets must be [batch, classes], or class indices [batch] or "
        f"[batch, 1]. Received: targets {shape} for {num_classes} classes."
    )


def clear_targets(targets: Tensor, num_classes: int) -> Tensor:
    """Returns targets `[b, j]` with a single one for soft labels.

    Soft labels are rows that sum to 1 but for rounding; their class is that of
    the largest number. Rows of several classes or of none stay as they are.
    """
    sums = ops.sum(targets, axis=-1, keepdims=True)
    is_one = ops.abs(sums - 1.0) <= SOFT_SUM_ERROR
    of_largest = ops.one_hot(
        ops.argmax(targets, axis=-1), num_classes, dtype=targets.dtype
    )
    return ops.where(is_one, of_largest, targets)


def check_axes(
    layer: Any, input_shape: Any, what: str, *axes: str, known: bool = False
) -> None:
    """Raises `ValueError` unless an input has such axes, and known sizes."""
    shape = tuple(input_shape)
    if len(shape) != len(axes) or (known and None in shape[1:]):
        rest = ", all known but the batch" if known else ""
        raise ValueError(
            f"{type(layer).__name__} takes {what} [{', '.join(axes)}]{rest}. "
            f"Received: input_shape={shape}."
        )


# The axes of maps of capsules, and of features.
MAP = ("batch", "rows", "columns", "types", "components")
FEATURES = ("batch", "rows", "columns", "channels")


def check_prediction(prediction: Tensor, *axes: str, loss: str) -> None:
    """Raises `ValueError` unless a loss gets a prediction of such axes."""
    shape = tuple(prediction.shape)
    if len(shape) == len(axes):
        return
    wanted = f"[{', '.join(axes)}]"
    hint = f"Give {loss} the output that has these axes."
    if axes == ("batch", "classes") and len(shape) == 3:
        hint = (
            "Of poses [batch, classes, components] take the lengths: add the "
            "layer `tfcaps.layers.Length()` to the model."
        )
    raise ValueError(
        f"{loss} takes predictions {wanted}. Received: predictions of the "
        f"shape {shape}. {hint}"
    )


def towards_class(values: Tensor, classes: Tensor) -> Tensor:
    """Picks of values `[b, ..., j]` those `[b, ...]` towards classes `[b]`."""
    column = ops.reshape(classes, (-1, *[1] * (len(values.shape) - 1)))
    return ops.squeeze(ops.take_along_axis(values, column, axis=-1), axis=-1)


def quantize(
    couplings: Tensor, levels: int, *, mode: str = "midtread"
) -> Tensor:
    """Returns the code (level index) of each coupling.

    `code = ceil(c * (levels - 1) - 1/2)`, clipped to `[0, levels - 1]`. A value
    half way between two levels goes down, as in the reference code's routing.

    Args:
        couplings: Tensor of couplings in [0, 1], any shape.
        levels: Int, at least 2. How many levels there are.
        mode: `"midtread"` has levels at 0 and 1; `"midrise"` cuts [0, 1] into
            `levels` equal bins and has a level in the middle of each (the
            paper's Tiny ImageNet setting). Defaults to `"midtread"`.

    Returns:
        Tensor of int32 codes with the shape of `couplings`.

    Raises:
        ValueError: If `levels` is below 2 or `mode` is unknown.
    """
    couplings = as_float32(couplings)
    check_quantizer(levels, mode)
    if mode == "midtread":
        codes = ops.ceil(couplings * (levels - 1) - 0.5)
    else:
        codes = ops.ceil(couplings * levels) - 1.0
    return ops.cast(ops.clip(codes, 0, levels - 1), "int32")


def dequantize(codes: Tensor, levels: int, *, mode: str = "midtread") -> Tensor:
    """Returns the float32 coupling that each code of `quantize` stands for."""
    check_quantizer(levels, mode)
    codes = ops.cast(codes, "float32")
    if mode == "midtread":
        return codes / (levels - 1)
    return (codes + 0.5) / levels


def rounded(couplings: Tensor, levels: int | None, mode: str) -> Tensor:
    """Returns couplings at their levels, as they are if `levels` is `None`."""
    if levels is None:
        return couplings
    codes = quantize(couplings, levels, mode=mode)
    return ops.cast(dequantize(codes, levels, mode=mode), couplings.dtype)


def is_integer(value: Any) -> bool:
    """Returns True for a whole number, of Python or NumPy."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def check_positive(**sizes: int) -> None:
    """Raises `ValueError` unless all sizes are integers of at least 1."""
    are = all(is_integer(size) and size > 0 for size in sizes.values())
    check_that(are, "be integers of at least 1", **sizes)


def check_not_negative(**numbers: float) -> None:
    """Raises `ValueError` if a number is below 0."""
    for name, number in numbers.items():
        check_that(number >= 0, "not be negative", **{name: number})


def check_mode(mode: Any, name: str = "mode") -> str:
    """Returns a mode of the quantiser, which is an argument `name`."""
    known = mode in ("midtread", "midrise")
    check_that(known, 'be "midtread" or "midrise"', **{name: mode})
    return str(mode)


def check_quantizer(levels: Any, mode: str) -> None:
    fits = is_integer(levels) and levels >= 2
    check_that(fits, "be an integer of at least 2", levels=levels)
    check_mode(mode)
