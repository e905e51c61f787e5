"""A network of parts that trains itself on images and labels alone."""

import contextvars
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
from keras import ops

from tfcaps import graphs
from tfcaps.ops import Tensor
from tfcaps.parts import samples
from tfcaps.parts.constellation_caps import ConstellationCaps
from tfcaps.parts.estimation import BlueprintEstimation, HardenParts, are_spare
from tfcaps.parts.losses import constellation_losses
from tfcaps.parts.part_caps import PartCaps
from tfcaps.parts.template_decoder import PRESENT, TemplateDecoder

# The model whose step is being computed, if it is one that trains itself.
_in_step: contextvars.ContextVar[Any] = contextvars.ContextVar(
    "in_step", default=None
)
# Outputs that a loss may be given for.
_TRAINED = ("evidence", "presence", "reconstruction")
# Images that templates are taken from.
_ADAPTED = 500
# Share of the training with hard competition, where types are not shared.
_HARD_IF_NOT_SHARED = 0.5


@keras.saving.register_keras_serializable(package="tfcaps")
class ConstellationModel(keras.Model):
    """A functional model of parts whose `fit(images, labels)` trains it.

    It maps images to lengths of classes, as every network does, and is trained
    on more, which its layers make besides:

    - `evidence` `[b, j]`: the logits of the classes;
    - `presence` `[b, h, w, t + 1]`: how much each type of part, and nothing, is
      at each place;
    - `reconstruction` `[b, h, w, c]`: the image, drawn again from a template of
      each type by `decoder`, a `TemplateDecoder`.

    The losses of these are `tfcaps.parts.constellation_losses`, and their
    targets the labels and the images. Metrics are those of the lengths. Of
    another `loss`, such as `tfcaps.losses.MarginLoss`, it is trained on lengths
    as any model. Other targets may be given by a dict in place of the labels.

    `fit` adds a `tfcaps.callbacks.BlueprintEstimation`, or `HardenParts` where
    there is nothing to estimate, unless one is among its callbacks, and gives
    it the images it needs. So all epochs should be those of one call. A network
    that has been trained keeps the width and the types that it has.

    Args:
        inputs: The input of images.
        outputs: The lengths, made by one `PartCaps`, called with
            `return_presence`, and one `ConstellationCaps`, called with
            `return_evidence`.
        name: String. Name of the model.
        **kwargs: Arguments of `keras.Model`.
    """

    # Copies with other outputs are plain, see `tfcaps.graphs`.
    trains_itself = True

    def __init__(
        self, inputs: Any, outputs: Any, name: str | None = None, **kwargs: Any
    ):
        super().__init__(inputs=inputs, outputs=outputs, name=name, **kwargs)
        part_caps(self), class_caps(self)  # or an error
        # A list, of which Keras lets layers be taken out again.
        self._decoders: list[TemplateDecoder] = []
        # Of the same layers, and so none of these.
        self._learner = SimpleNamespace(model=None)
        self._is_drawn_at_random = True

    # ---------------------------------------------------------- compilation

    def compile(
        self,
        optimizer: Any = "auto",
        loss: Any = "auto",
        *,
        metrics: Any = "auto",
        **kwargs: Any,
    ) -> None:
        """Configures the training, as `keras.Model.compile` does.

        Args:
            optimizer: As in Keras. Defaults to `"auto"`, Adam with a rate of
                3e-3.
            loss: As in Keras, or a dict of losses of some of `evidence`,
                `presence` and `reconstruction`, see
                `tfcaps.parts.constellation_losses`. Defaults to `"auto"`, those
                that suit the network.
            metrics: As in Keras, of the lengths. Defaults to `"auto"`, the
                accuracy.
            **kwargs: Other arguments of `keras.Model.compile`.
        """
        if isinstance(optimizer, str) and optimizer == "auto":
            optimizer = keras.optimizers.Adam(3e-3)
        if isinstance(loss, str) and loss == "auto":
            loss = constellation_losses()
            if not class_caps(self).shared:
                # Nothing but these keeps the parts of photos few, of one type.
                loss = constellation_losses(sparsity=0.05, ambiguity=0.1)
                del loss["reconstruction"]
        if isinstance(metrics, str) and metrics == "auto":
            metrics = ["accuracy"]
        self._learner.model = None
        if not (isinstance(loss, dict) and "reconstruction" in loss):
            self._decoders.clear()
        elif self.decoder is None:
            self._make_decoder()
        super().compile(optimizer, loss, metrics=metrics, **kwargs)

    def get_compile_config(self) -> dict[str, Any]:
        config = super().get_compile_config()
        # Of one without variables a file could not be loaded in silence.
        if config and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return config

    def compile_from_config(self, config: dict[str, Any]) -> None:
        config = {k: v for k, v in config.items() if k != "template_size"}
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def save(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Saves the model, as `keras.Model.save` does; not as `.h5`."""
        graphs.check_file(self, filepath)
        super().save(filepath, *args, **kwargs)

    def go_on_from(self, model: "ConstellationModel") -> None:
        """Takes over what another model of the same types draws."""
        if model.decoder is not None:
            self._make_decoder()
            self._decoders[0].set_weights(model.decoder.get_weights())
            self._is_drawn_at_random = model._is_drawn_at_random

    def _make_decoder(self) -> None:
        layer: Any = part_caps(self)
        # As large as the window in which there is one part.
        size = int(layer.window * layer.stride) | 1
        decoder = TemplateDecoder(
            self.input_shape[1:], size, layer.offset, name="decoder"
        )
        decoder.build(layer.output[1].shape)
        self._decoders.clear()
        self._decoders.append(decoder)
        self._is_drawn_at_random = True

    # ----------------------------------------------------------------- steps

    @property
    def decoder(self) -> TemplateDecoder | None:
        """The layer that draws an image from its parts, if that is trained."""
        return self._decoders[0] if self._decoders else None

    @property
    def learns_parts(self) -> bool:
        """Whether it is compiled with losses of parts."""
        loss = getattr(self, "loss", None)
        return isinstance(loss, dict) and bool(set(loss) & set(_TRAINED))

    @property
    def estimates_blueprints(self) -> bool:
        """Whether training finds where the types of its classes stand."""
        is_drawn = self.learns_parts and "reconstruction" in self.loss
        return is_drawn and class_caps(self).shared

    @property
    def is_trained(self) -> bool:
        """Whether it has been trained to the end: its places compete hard."""
        return bool(ops.convert_to_numpy(part_caps(self).hardness) == 1.0)

    def learner(self) -> keras.Model:
        """Returns the model of the same layers from images to a dict.

        It has `lengths`, the map `features` that parts are made of, and what is
        trained.
        """
        if self._learner.model is None:
            plain = keras.Model(self.input, self.output, name=self.name)
            copy, calls = graphs.calls_of(plain)
            made = {graphs.unwrapped(call.layer): call for call in calls}
            parts, classes = part_caps(self), class_caps(self)
            outputs = {
                "lengths": copy.output,
                "features": made[parts].inputs[0],
            }
            for layer, name in ((parts, "presence"), (classes, "evidence")):
                if len(made[layer].outputs) < 3:
                    raise ValueError(
                        f"The layer {layer.name!r} of {self.name!r} must be "
                        f"called with `return_{name}=True`, so that the network"
                        " can be trained. Received: a call without it."
                    )
                outputs[name] = made[layer].outputs[2]
            if self.decoder is not None:
                active = parts.compete(outputs["presence"])
                outputs["reconstruction"] = self.decoder(active)
            model = keras.Model(copy.input, outputs, name=self.name)
            self._learner.model = model
        return self._learner.model

    def train_step(self, *args: Any) -> Any:
        return self._as_learner(super().train_step, *args)

    def test_step(self, *args: Any) -> Any:
        return self._as_learner(super().test_step, *args)

    def _as_learner(self, step: Callable[..., Any], *args: Any) -> Any:
        def run() -> Any:
            _in_step.set(self if self.learns_parts else None)
            return step(*args)

        return contextvars.copy_context().run(run)

    def call(
        self, inputs: Any, training: bool | None = None, mask: Any = None
    ) -> Any:
        if _in_step.get() is self:
            images = keras.tree.flatten(inputs)[0]
            return self.learner()(images, training=training)
        return super().call(inputs, training=training, mask=mask)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Tensor:
        if not self.learns_parts:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        if y is None:
            raise ValueError(
                f"{self.name!r} is trained on images and their labels. "
                "Received: no labels."
            )
        if not isinstance(y_pred, dict):
            y_pred = self.learner()(x, training=training)
        images = ops.cast(keras.tree.flatten(x)[0], "float32")
        images = ops.reshape(images, (-1, *self.input_shape[1:]))
        targets = {"evidence": y, "presence": y, "reconstruction": images}
        if isinstance(y, dict):
            targets |= y
        return super().compute_loss(
            x,
            {name: targets[name] for name in self.loss},
            {name: y_pred[name] for name in self.loss},
            sample_weight,
            training,
        )

    def compute_metrics(
        self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None
    ) -> Any:
        if isinstance(y_pred, dict):
            y_pred = y_pred["lengths"]
        if isinstance(y, dict) and self.learns_parts:
            y = y["evidence"]
        return super().compute_metrics(x, y, y_pred, sample_weight)

    # ------------------------------------------------------------------- fit

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        **kwargs: Any,
    ) -> Any:
        if not self.compiled:
            self.compile()
        if self.learns_parts:
            sample = None
            is_trained = self.is_trained and not kwargs.get("initial_epoch")
            if self.estimates_blueprints:
                sizes = *self.input_shape[1:], self.output_shape[1]
                x, sample = samples.of_data(x, y, validation_split, sizes)
                if is_trained and self._is_drawn_at_random:
                    self._adapt_templates(sample)
                self._is_drawn_at_random = False
            callbacks = _with_schedule(callbacks, sample, self, is_trained)
        return super().fit(
            x,
            y,
            batch_size,
            epochs,
            verbose,
            callbacks,
            validation_split,
            **kwargs,
        )

    def _adapt_templates(self, sample: samples.Sample) -> None:
        """Lets templates be what the types of a trained network stand for."""
        images = sample(0)[0][:_ADAPTED]
        if self.decoder is None or not len(images):
            return
        presence = self.learner().predict(images, verbose=0)["presence"]
        active = ops.convert_to_numpy(part_caps(self).compete(presence))
        if active.max() > PRESENT:
            self.decoder.adapt(images, active)

    # ----------------------------------------------------------------- saving

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if self.decoder is not None:
            config["template_size"] = self.decoder.size
        return config

    @classmethod
    def from_config(cls, config: Any, custom_objects: Any = None) -> Any:
        is_drawn = "template_size" in config
        config = {k: v for k, v in config.items() if k != "template_size"}
        model = super().from_config(config, custom_objects)
        if is_drawn:
            model._make_decoder()
            model._is_drawn_at_random = False
        return model


def part_caps(model: keras.Model) -> PartCaps:
    """Returns the layer that finds parts."""
    return graphs.only_layer(model, PartCaps)


def class_caps(model: keras.Model) -> ConstellationCaps:
    """Returns the layer that finds classes by their parts."""
    return graphs.only_layer(model, ConstellationCaps)


def _with_schedule(
    callbacks: Any, sample: Any, model: ConstellationModel, is_trained: bool
) -> list[keras.callbacks.Callback]:
    """Returns callbacks with one that changes parts, the first."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = callbacks.callbacks
    every = keras.tree.flatten(callbacks or [])
    given = [each for each in every if isinstance(each, HardenParts)]
    if given:
        (schedule,) = given
    elif sample is None:
        hard = 1.0 if is_trained else _HARD_IF_NOT_SHARED
        schedule = HardenParts(hard)
    elif is_trained:
        schedule = BlueprintEstimation(widths=None, hard=1.0, merge=None)
    else:
        schedule = BlueprintEstimation()
    if isinstance(schedule, BlueprintEstimation):
        schedule.sample = schedule.sample or sample
    return every if given else [schedule, *every]


def without_spare_types(model: keras.Model) -> keras.Model:
    """Returns a network of parts without the types that others have taken in.

    It has the same outputs, and fewer children. Types are numbered anew, in
    their order. Its other layers are those of `model`.

    Args:
        model: A functional model with one `PartCaps` and one
            `ConstellationCaps`, that is trained.

    Returns:
        `model` itself, if no type is spare.

    Raises:
        ValueError: If the model has not one of each of these layers, or all
            types are spare.
    """
    parts, classes = part_caps(model), class_caps(model)
    stays = ~are_spare(ops.convert_to_numpy(parts.conv.bias))
    if not stays.any():
        raise ValueError(
            f"All {len(stays)} types of {model.name!r} are spare. Train it "
            "anew."
        )
    if stays.all():
        return model

    def smaller(layer: Any) -> Any:
        if layer not in (parts, classes):
            return layer
        config = layer.get_config()
        if layer is parts:
            config["num_types"] = int(stays.sum())
        return type(layer).from_config(config)

    clone = keras.models.clone_model(model, clone_function=smaller)
    rows = np.tile(stays, classes.max_of_type)  # of the blueprints
    for layer in (parts, classes):
        pairs = zip(
            layer.weights, clone.get_layer(layer.name).weights, strict=True
        )
        for old, new in pairs:
            value = ops.convert_to_numpy(old)
            if value.shape != tuple(new.shape):
                value = value[..., stays] if layer is parts else value[rows]
            new.assign(value)
    if isinstance(clone, ConstellationModel) and clone.decoder is not None:
        old = ops.convert_to_numpy(model.decoder.templates)
        clone.decoder.set_weights([old[..., stays], model.decoder.ground])
    return clone
