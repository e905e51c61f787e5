"""Windows of a map of capsules: cutting them out, competing across them."""

import math
from typing import Any

import numpy as np
from keras import ops
from numpy.typing import NDArray

from tfcaps.ops import Tensor, is_integer
from tfcaps.routing.votes import Votes

# exp(_NOTHING - x) is 0 for every finite logit x.
_NOTHING = -1e30


class Windows:
    """The places of a convolution's windows on a map of so many rows, columns.

    Attributes:
        shape: How many windows there are, down and across.

    Raises:
        ValueError: If no window fits into the map.
    """

    def __init__(
        self,
        sides: tuple[int, int],
        kernel_size: tuple[int, int],
        strides: tuple[int, int],
        padding: str,
    ):
        self.kernel_size = kernel_size
        self.strides = strides
        self._pads = [(0, 0), (0, 0)]
        steps = list(zip(sides, kernel_size, strides, strict=True))
        if padding == "same":
            totals = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in steps]
            self._pads = [(total // 2, -(-total // 2)) for total in totals]
        self._padded = [
            n + sum(pads) for n, pads in zip(sides, self._pads, strict=True)
        ]
        self.shape = tuple(
            (n - k) // s + 1
            for n, k, s in zip(self._padded, kernel_size, strides, strict=True)
        )
        if min(self.shape) < 1:
            raise ValueError(
                f"A window of {kernel_size} does not fit into a map of "
                f"{sides[0]} rows and {sides[1]} columns."
            )

    def cut(self, maps: Tensor) -> Tensor:
        """Returns windows `[b, h', w', p, q, ...]` of maps `[b, h, w, ...]`."""
        parts = self.parts(maps)
        shape = (-1, *self.shape, *self.kernel_size, *parts[0].shape[3:])
        return ops.reshape(ops.stack(parts, axis=3), shape)

    def parts(self, maps: Tensor) -> list[Tensor]:
        """Returns the content of windows at each place, `[b, h', w', ...]`."""
        if any(map(sum, self._pads)):
            rest = [(0, 0)] * (len(maps.shape) - 3)
            maps = ops.pad(maps, [(0, 0), *self._pads, *rest])
        (down, across), (rows, columns) = self.strides, self.shape
        return [
            maps[
                :,
                p : p + down * (rows - 1) + 1 : down,
                q : q + across * (columns - 1) + 1 : across,
            ]
            for p, q in np.ndindex(*self.kernel_size)
        ]

    def normalizers(self, logits: Tensor) -> Tensor:
        """Returns the logarithm of a child's sum over all its windows.

        That is of the exponentials of the logits of the elements of windows
        that hold it, `[b, h' * w' * p * q, t]`, as the result.
        """
        members, children = self._members()

        def by_child(values: Tensor, nothing: float) -> Tensor:
            # `members` is filled up with an element that adds nothing.
            pads = [(0, 0), (0, 1), (0, 0)]
            values = ops.pad(values, pads, constant_values=nothing)
            values = ops.take(values, members.ravel(), axis=1)
            return ops.reshape(values, (-1, *members.shape, values.shape[-1]))

        # The gradient of `ops.take` would scatter, which is slow.
        @ops.custom_gradient
        def normalizers(logits: Tensor) -> tuple[Tensor, Any]:
            totals = ops.logsumexp(by_child(logits, _NOTHING), axis=2)
            totals = ops.take(totals, children, axis=1)

            def gradient(*arguments: Tensor, upstream: Any = None) -> Any:
                (slopes,) = arguments if upstream is None else (upstream,)
                slopes = ops.sum(by_child(slopes, 0.0), axis=2)
                slopes = ops.take(slopes, children, axis=1)
                return slopes * ops.exp(logits - totals)

            return totals, gradient

        result: Tensor = normalizers(logits)
        return result

    def _members(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Groups the elements `h' * w' * p * q` of windows by their child.

        Returns those of each child of a type, int32 `[children, most]`, filled
        up with one more than there are; and the child of each element.
        """
        steps = [
            step * np.arange(count)[:, None] + np.arange(side)
            for step, count, side in zip(
                self.strides, self.shape, self.kernel_size, strict=True
            )
        ]
        rows, columns = steps[0][:, None, :, None], steps[1][None, :, None]
        places = (rows * self._padded[1] + columns).ravel()
        _, children = np.unique(places, return_inverse=True)
        order = np.argsort(children, kind="stable")
        owners = children[order]
        slots = np.arange(len(order)) - np.searchsorted(owners, owners)
        members = np.full((owners[-1] + 1, slots.max() + 1), len(order))
        members[owners, slots] = order
        return members.astype("int32"), children.astype("int32")


class WindowVotes(Votes):
    """Votes `[b * h' * w', j, p * q * t, d]` of children in windows.

    A child lies in several windows. Where a routing lets all its parents
    compete, these are the parents of all windows that hold it.
    """

    def __init__(self, tensor: Tensor, windows: Windows, types: int):
        super().__init__(tensor, parents_first=True)
        self._windows = windows
        self._types = types

    def compete(self, logits: Tensor) -> Tensor:
        elements = math.prod((*self._windows.shape, *self._windows.kernel_size))
        inside = ops.logsumexp(logits, axis=-1)
        inside = ops.reshape(inside, (-1, elements, self._types))
        total = self._windows.normalizers(inside)
        return ops.exp(logits - ops.reshape(total, (-1, logits.shape[1], 1)))


def as_pair(value: Any, name: str) -> tuple[int, int]:
    """Returns one int twice, or two ints; `ValueError` unless above 0."""
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value,) * 2
    if len(pair) != 2 or not all(is_integer(v) and v > 0 for v in pair):
        raise ValueError(
            f"`{name}` must be an int or two ints of at least 1. Received: "
            f"{name}={value!r}."
        )
    return int(pair[0]), int(pair[1])
