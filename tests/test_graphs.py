"""Copies and parts of models: training models, optional inputs, own classes."""

import keras
import numpy as np
import pytest

import tfcaps
from tests.networks import named_outputs, tiny_capsnet
from tests.tolerance import SUMS
from tfcaps import graphs, rem
from tfcaps.models import with_decoder

LABELS = np.arange(6) % 3


@pytest.fixture
def images(rng):
    return rng.random((6, 8, 8, 1), dtype=np.float32)


def network(**settings):
    return tiny_capsnet(primary_kernel_size=4, **settings)


@pytest.fixture
def loaded(tmp_path):
    def give(model):
        model.save(tmp_path / "model.keras")
        return keras.models.load_model(tmp_path / "model.keras")

    return give


TRAINING = {
    "couplings": lambda m: rem.add_couplings(m),
    "ramp": lambda m: rem.add_couplings(m, ramp_steps=3, counterfactual=True),
    "decoder": lambda m: rem.add_couplings(with_decoder(m)),
    "shown": lambda m: rem.capsule_outputs(m),
}


@pytest.mark.parametrize("kind", TRAINING)
def test_a_training_model_is_taken_for_its_network(kind, loaded, images):
    model = network()
    lengths = model(images)
    training = TRAINING[kind](model)
    for again in (training, loaded(training)):
        found = rem.classifier(again)
        assert found.output.shape == (None, 3)
        np.testing.assert_allclose(found(images), lengths, atol=SUMS)
        assert len(graphs.routed_layers(found)) == 1
    for make in (lambda m: rem.quantize_couplings(m, 5), rem.compact):
        found = named_outputs(make(again), images)
        assert not found.keys() & {"couplings", "counterfactual"}
        expected = make(model)(images)
        np.testing.assert_allclose(found["lengths"], expected, atol=SUMS)
    if kind == "couplings":
        found = named_outputs(with_decoder(again), images)
        assert found.keys() == {"lengths", "reconstruction"}
        np.testing.assert_allclose(found["lengths"], lengths, atol=SUMS)


FUNCTIONS = {
    "evaluate": lambda m, x: rem.evaluate(m, (x, LABELS), 5).to_dict(),
    "trees": lambda m, x: rem.trees(m, x, 11).codes.tolist(),
    "parse_tree": lambda m, x: rem.trees(m, x).parse_tree().edges,
    "grid": lambda m, x: graphs.children_grid(m),
    "multiply_adds": lambda m, x: rem.multiply_adds(m).per_layer,
    "compact": lambda m, x: rem.compact(m).count_params(),
}


def test_functions_take_a_training_model_as_the_network(images):
    model = network()
    kernel = model.get_layer("conv").kernel
    kernel.assign(np.asarray(kernel) * [1, 0, 1, 1])
    training = rem.add_couplings(model, counterfactual=True)
    for name, function in FUNCTIONS.items():
        found = function(training, images)
        assert repr(found) == repr(function(model, images)), name


COPIES = {
    "quantize_couplings": lambda m: rem.quantize_couplings(m, 11),
    "compact": rem.compact,
    "add_couplings": rem.add_couplings,
    "with_decoder": with_decoder,
}


@pytest.mark.parametrize("routing", ["dynamic", "regularized"])
def test_inputs_of_copies_stay_optional(routing, loaded, images):
    model = with_decoder(network(routing=routing))
    expected = named_outputs(model, images)["lengths"]
    for make in (rem.add_couplings, rem.compact, keras.models.clone_model):
        copy = loaded(make(model))
        copy.set_weights(model.get_weights())
        found = named_outputs(copy, images)["lengths"]
        np.testing.assert_allclose(found, expected, atol=SUMS)


class Halved(keras.Model):
    """Trains on half of the loss."""

    def compute_loss(self, *args, **kwargs):
        return 0.5 * super().compute_loss(*args, **kwargs)


class Settings(Halved):
    """Cannot be made of inputs and outputs alone."""

    def __init__(self, inputs, outputs, share, **kwargs):
        super().__init__(inputs, outputs, **kwargs)
        self.share = share


class InRows(keras.Sequential):
    """A sequential model with a step of its own."""

    def train_step(self, *args, **kwargs):
        raise AssertionError("not called")


class Bright(keras.Model):
    """Does something else than its layers."""

    def call(self, inputs, *args, **kwargs):
        return super().call(2.0 * inputs, *args, **kwargs)


@pytest.mark.parametrize("name", COPIES)
def test_a_class_of_ones_own_is_kept_or_refused(name):
    make, plain = COPIES[name], network()
    ends = plain.input, plain.output
    copy = make(Halved(*ends, name="halved"))
    assert (type(copy), copy.name) == (Halved, "halved")
    patched = network()
    patched.train_step = lambda data: {}
    for model, said in (
        (Settings(*ends, share=0.1), "own `compute_loss`, or .*a Settings,"),
        (InRows(plain.layers), "own `train_step`.*Received: a InRows"),
        (patched, "whose `train_step` a copy would"),
        (Bright(*ends), "must do what its layers do"),
    ):
        with pytest.raises(ValueError, match=said):
            make(model)


def test_measuring_asks_for_layers_and_not_for_the_training(images):
    plain = network()
    ends = plain.input, plain.output
    settings = Settings(*ends, share=0.1)
    assert rem.classifier(settings).output.shape == (None, 3)
    for use in (rem.classifier, rem.multiply_adds):
        with pytest.raises(ValueError, match="must do what its layers do"):
            use(Bright(*ends))
    # Saliencies are those of the own loss.
    settings.compile("adam", tfcaps.losses.MarginLoss())
    with pytest.raises(ValueError, match="own `compute_loss`"):
        rem.prune_single_shot(settings, [(images, LABELS)], 0.5)
