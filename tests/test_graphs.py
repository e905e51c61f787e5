"""Copies and parts of models: training models, optional inputs, own classes."""

import keras
import numpy as np
import pytest

import tfcaps
from tests.networks import tiny_capsnet
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
    """Returns a function that saves a model and loads it."""

    def give(model):
        model.save(tmp_path / "model.keras")
        return keras.models.load_model(tmp_path / "model.keras")

    return give


def predicted(model, images):
    inputs = images
    if isinstance(model.input, dict):
        inputs = {"images": images, "labels": None}
    outputs = model.predict(inputs, verbose=0)
    return outputs if isinstance(outputs, dict) else {"lengths": outputs}


TRAINING = {
    "couplings": lambda m: rem.add_couplings(m),
    "ramp": lambda m: rem.add_couplings(m, ramp_steps=3, counterfactual=True),
    "decoder": lambda m: rem.add_couplings(with_decoder(m)),
    "shown": lambda m: rem.capsule_outputs(m),
}
every_training_model = pytest.mark.parametrize("kind", TRAINING)


@every_training_model
def test_the_encoder_of_a_training_model_is_the_network(kind, loaded, images):
    model = network()
    training = TRAINING[kind](model)
    for again in (training, loaded(training)):
        found = rem.encoder(again)
        assert found.output.shape == (None, 3)
        np.testing.assert_allclose(found(images), model(images), atol=SUMS)
        assert len(graphs.routed_layers(found)) == 1


FUNCTIONS = {
    "evaluate": lambda m, x: rem.evaluate(m, (x, LABELS), 5).to_dict(),
    "faithfulness": lambda m, x: rem.faithfulness(m, x).to_dict(),
    "find_levels": lambda m, x: rem.find_levels(m, (x, LABELS), (3,)).to_dict(),
    "trees": lambda m, x: rem.trees(m, x, 11).codes.tolist(),
    "parse_tree": lambda m, x: rem.trees(m, x).parse_tree().to_dict(),
    "maps": lambda m, x: rem.coupling_maps(m, x).tolist(),
    "grid": lambda m, x: graphs.children_grid(m),
    "multiply_adds": lambda m, x: rem.multiply_adds(m).per_layer,
    "compact": lambda m, x: rem.compact(m).count_params(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_a_training_model_as_the_network(name, images):
    model = network()
    kernel = model.get_layer("conv").kernel
    kernel.assign(np.asarray(kernel) * [1, 0, 1, 1])
    training = rem.add_couplings(model, counterfactual=True)
    found = FUNCTIONS[name](training, images)
    assert repr(found) == repr(FUNCTIONS[name](model, images))


@every_training_model
def test_copies_of_a_training_model_are_those_of_the_network(
    kind, loaded, images
):
    model = network()
    training = loaded(TRAINING[kind](model))
    for make in (lambda m: rem.quantize_couplings(m, 5), rem.compact):
        found = predicted(make(training), images)
        assert not found.keys() & {"couplings", "counterfactual"}
        np.testing.assert_allclose(
            found["lengths"], make(model)(images), atol=SUMS
        )


def test_a_training_model_gets_a_decoder(loaded, images):
    model = network()
    found = with_decoder(loaded(rem.add_couplings(model)))
    outputs = predicted(found, images)
    assert outputs.keys() == {"lengths", "reconstruction"}
    np.testing.assert_allclose(outputs["lengths"], model(images), atol=SUMS)


COPIES = {
    "quantize_couplings": lambda m: rem.quantize_couplings(m, 11),
    "compact": rem.compact,
    "clone_model": keras.models.clone_model,
    "add_couplings": rem.add_couplings,
    "without": lambda m: graphs.without_couplings(rem.add_couplings(m)),
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("kind", ["decoder", "regularized"])
def test_inputs_of_copies_stay_optional(name, kind, loaded, images):
    model = network(routing="regularized" if kind != "decoder" else "dynamic")
    if kind == "decoder":
        model = with_decoder(model)
    copy = loaded(COPIES[name](loaded(model)))
    copy.set_weights(model.get_weights())
    found = copy.predict({"images": images, "labels": None}, verbose=0)
    expected = model.predict({"images": images, "labels": None}, verbose=0)
    tolerance = 0.05 if name == "quantize_couplings" else 1e-6
    np.testing.assert_allclose(
        found["lengths"], expected["lengths"], atol=tolerance
    )


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


MAKE_COPIES = {
    **{k: v for k, v in COPIES.items() if k not in ("clone_model", "without")},
    "with_decoder": with_decoder,
}


@pytest.mark.parametrize("name", MAKE_COPIES)
def test_a_class_of_ones_own_is_kept_or_refused(name):
    make, plain = MAKE_COPIES[name], network()
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


def test_measuring_asks_for_layers_and_not_for_the_training():
    plain = network()
    settings = Settings(plain.input, plain.output, share=0.1)
    assert rem.encoder(settings).output.shape == (None, 3)
    for use in (rem.encoder, rem.multiply_adds):
        with pytest.raises(ValueError, match="must do what its layers do"):
            use(Bright(plain.input, plain.output))


def test_the_kept_training_is_that_of_the_class(images):
    losses = []
    plain = network()
    for kind in (keras.Model, Halved):
        model = rem.compact(kind(plain.input, plain.output))
        model.compile("adam", tfcaps.losses.MarginLoss())
        losses.append(model.evaluate(images, LABELS, verbose=0))
    assert losses[1] == pytest.approx(0.5 * losses[0])


def test_saliencies_are_those_of_the_own_loss(images):
    plain = network()
    model = Settings(plain.input, plain.output, share=0.1)
    model.compile("adam", tfcaps.losses.MarginLoss())
    with pytest.raises(ValueError, match="own `compute_loss`"):
        rem.prune_single_shot(model, [(images, LABELS)], 0.5)
