"""Each cell of the table of data in the guide: taken as arrays, or refused."""

import functools
import re
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfcaps
from tests.networks import tiny_capsnet
from tfcaps import rem

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "data.md"
COUNT = 8  # two batches of one size
Y = np.arange(COUNT) % 3
W = np.linspace(0.5, 1.0, COUNT).astype("float32")


def table():
    """Returns what the guide says of each function and kind of data."""
    text = GUIDE.read_text("utf-8")
    start = text.index("| function |")
    title, _, *rows = re.match(r"(\|.*\n)+", text[start:])[0].splitlines()
    cells = [
        [cell.strip().strip("`") for cell in row.strip("|").split("|")]
        for row in (title.replace("`", ""), *rows)
    ]
    kinds = cells[0][1:]
    return {
        (row[0], kind): cell
        for row in cells[1:]
        for kind, cell in zip(kinds, row[1:], strict=True)
    }


def batches(*arrays):
    return [
        tuple(array[at : at + 4] for array in arrays)
        for at in range(0, COUNT, 4)
    ]


class Pairs(keras.utils.PyDataset):
    def __init__(self, x):
        super().__init__()
        self.x, self.batches = x, batches(0 * x, 0 * Y)

    def on_epoch_begin(self):
        self.batches = batches(self.x, Y)

    def on_epoch_end(self):
        self.batches = batches(0 * self.x, 0 * Y)

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def as_dicts(x):
    return {"images": x, "labels": Y}, {"lengths": Y, "reconstruction": x}


DATA = {
    "arrays": lambda x: (x, Y),
    "tensors": lambda x: tuple(map(keras.ops.convert_to_tensor, (x, Y))),
    "dicts": as_dicts,
    "list of batches": lambda x: batches(x, Y),
    "tf.data": lambda x: tf.data.Dataset.from_tensor_slices((x, Y)).batch(4),
    "tf.data of dicts": lambda x: tf.data.Dataset.from_tensor_slices(
        as_dicts(x)
    ).batch(4),
    "PyDataset": Pairs,
    "generator": lambda x: (pair for pair in batches(x, Y)),
    "with weights": lambda x: (x, Y, W),
    "images alone": lambda x: x,
    "signals": lambda x: (x, Y),
}


def single_shot(model, data):
    losses = {
        "lengths": tfcaps.losses.MarginLoss(),
        "reconstruction": tfcaps.losses.ReconstructionLoss(),
    }
    model.compile(
        "adam", losses if isinstance(model.output, dict) else losses["lengths"]
    )
    before = model.get_weights()
    rem.prune_single_shot(model, data, 0.5)
    share = model.pruning.sparsity()
    rem.strip_pruning(model).set_weights(before)
    return share  # which weights depends on how the batches are cut


def iteratively(model, data):
    model.compile("adam", tfcaps.losses.MarginLoss())
    rem.prune_iteratively(model, data)
    measured = model.pruning._measure(model)
    rem.strip_pruning(model)
    return measured


@functools.cache
def evaluator(model):
    return rem.Evaluator(model)


def evaluated(model, data):
    return evaluator(model).run(data, batch_size=4).to_dict()


FUNCTIONS = {
    "evaluate": evaluated,
    "faithfulness": lambda m, d: rem.faithfulness(m, d, draws=1).to_dict(),
    "trees": lambda m, d: rem.trees(m, d).couplings,
    "prune_iteratively": iteratively,
    "prune_single_shot": single_shot,
}


def of_signals():
    signals = keras.Input((8, 1), name="signals")
    features = keras.layers.Conv1D(6, 3, activation="relu")(signals)
    children = keras.layers.Reshape((6, 6))(features)
    poses = tfcaps.layers.ClassCaps(3, 4)(children)
    return keras.Model(signals, tfcaps.layers.Length()(poses))


@pytest.fixture(scope="module")
def networks():
    keras.utils.set_random_seed(0)
    model = tiny_capsnet(primary_kernel_size=4)
    return {
        "images": model,
        "signals": of_signals(),
        "dicts": tfcaps.models.with_decoder(model),
    }


@pytest.fixture(scope="module")
def expected(networks):
    """Results for arrays, by the name of the function."""
    return {}


def images(kind):
    shape = (COUNT, 8, 1) if kind == "signals" else (COUNT, 8, 8, 1)
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def flat(result):
    leaves = keras.tree.flatten(result)
    numbers = [x for x in leaves if not isinstance(x, (str, type(None)))]
    return np.concatenate([np.ravel(x).astype(float) for x in numbers])


def test_every_function_and_kind_is_in_the_table():
    assert table().keys() == {(f, kind) for f in FUNCTIONS for kind in DATA}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(
            name,
            kind,
            # The reader is the same as that of `evaluate`.
            marks=()
            if name == "evaluate" or (name, kind) == ("trees", "arrays")
            else pytest.mark.slow,
        )
        for name in FUNCTIONS
        for kind in DATA
    ],
)
def test_the_cell_is_true(name, kind, networks, expected):
    x = images(kind)
    model = networks["signals" if kind == "signals" else "images"]
    if name == "prune_single_shot" and "dicts" in kind:
        model = networks["dicts"]
    function, data = FUNCTIONS[name], DATA[kind](x)
    if table()[name, kind] == "no":
        message = "must|needs?|have none|takes? |are needed"
        with pytest.raises(ValueError, match=message) as error:
            function(model, data)
        assert "\n" not in str(error.value)
        return
    found = flat(function(model, data))
    if kind == "signals":
        assert np.isfinite(found).all()
        return
    if name not in expected:
        expected[name] = flat(function(networks["images"], (x, Y)))
    tolerance = 0.01 if name == "prune_single_shot" else 1e-5
    np.testing.assert_allclose(found, expected[name], atol=tolerance)
