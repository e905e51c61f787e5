"""A network of parts that trains itself on images and labels alone."""

import contextvars
from types import SimpleNamespace
from typing import Any

import keras
from keras import ops

from tfcaps import graphs
from tfcaps.layers import (
    ConstellationCaps,
    PartCaps,
    TemplateDecoder,
)
from tfcaps.layers.part_caps import compete, of_types, winners
from tfcaps.layers.template_decoder import PRESENT
from tfcaps.losses import constellation_losses
from tfcaps.ops import Tensor
from tfcaps.parts import samples
from tfcaps.parts.estimation import BlueprintEstimation, HardenParts

# The model whose step is being computed, if it is one that trains itself.
_in_step: contextvars.ContextVar[Any] = contextvars.ContextVar(
    "in_step", default=None
)
# Outputs that a loss may be given for.
_TRAINED = ("evidence", "presence", "reconstruction")
# Images that templates are taken from.
_ADAPTED = 500
# Share of the training with hard competition, on a backbone.
_HARD_ON_BACKBONE = 0.5


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

    The losses of these are `tfcaps.losses.constellation_losses`, and their
    targets the labels and the images. Metrics are those of the lengths. Of
    another `loss`, such as `tfcaps.losses.MarginLoss`, it is trained on lengths
    as any model. Other targets may be given by a dict in place of the labels.

    `fit` adds a `tfcaps.callbacks.BlueprintEstimation`, or `HardenParts` where
    there is nothing to estimate, unless one is among its callbacks, and gives
    it the images it needs. So all epochs should be those of one call. A network
    that has been trained keeps the width and the types that it has.

    Args:
        inputs: The input of images.
        outputs: The lengths, made by one `PartCaps` and one
            `ConstellationCaps`.
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
        self._template_size = 11
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
        template_size: int = 11,
        **kwargs: Any,
    ) -> None:
        """Configures the training, as `keras.Model.compile` does.

        Args:
            optimizer: As in Keras. Defaults to `"auto"`, Adam with a rate of
                3e-3.
            loss: As in Keras, or a dict of losses of some of `evidence`,
                `presence` and `reconstruction`, see
                `tfcaps.losses.constellation_losses`. Defaults to `"auto"`,
                those that suit the network.
            metrics: As in Keras, of the lengths. Defaults to `"auto"`, the
                accuracy.
            template_size: Int, odd. Rows and columns of the picture of a type,
                in pixels. Defaults to `11`.
            **kwargs: Other arguments of `keras.Model.compile`.
        """
        if isinstance(optimizer, str) and optimizer == "auto":
            optimizer = keras.optimizers.Adam(3e-3)
        if isinstance(loss, str) and loss == "auto":
            loss = _losses_of(class_caps(self))
        if isinstance(metrics, str) and metrics == "auto":
            metrics = ["accuracy"]
        self._template_size = template_size
        self._learner.model = None
        if not (isinstance(loss, dict) and "reconstruction" in loss):
            self._decoders.clear()
        elif self.decoder is None or self.decoder.size != template_size:
            self._make_decoder(template_size)
        super().compile(optimizer, loss, metrics=metrics, **kwargs)

    def get_compile_config(self) -> dict[str, Any]:
        config = super().get_compile_config()
        if config:
            config["template_size"] = self._template_size
            # Of one without variables a file could not be loaded in silence.
            if not self.optimizer.built:
                self.optimizer.build(self.trainable_variables)
        return config

    def compile_from_config(self, config: dict[str, Any]) -> None:
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def go_on_from(self, model: "ConstellationModel") -> None:
        """Takes over what another model of the same types draws."""
        if model.decoder is not None:
            self._template_size = model.decoder.size
            self._make_decoder(self._template_size)
            self._decoders[0].set_weights(model.decoder.get_weights())
            self._is_drawn_at_random = model._is_drawn_at_random

    def _make_decoder(self, size: int) -> None:
        layer: Any = part_caps(self)
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
        """Whether training finds where the types of its classes stand.

        Those of a backbone and of known parts stay.
        """
        is_drawn = self.learns_parts and "reconstruction" in self.loss
        return is_drawn and class_caps(self).shared

    def learner(self) -> keras.Model:
        """Returns the model of the same layers from images to a dict.

        It has `lengths` and what is trained.
        """
        if self._learner.model is None:
            self._learner.model = _learner_of(self)
        return self._learner.model

    def train_step(self, *args: Any) -> Any:
        with self._as_learner():
            return super().train_step(*args)

    def test_step(self, *args: Any) -> Any:
        with self._as_learner():
            return super().test_step(*args)

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

    def _as_learner(self) -> Any:
        return _Set(self if self.learns_parts else None)

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
                x, sample = samples.of_data(
                    x,
                    y,
                    validation_split,
                    self.input_shape[1:],
                    self.output_shape[1],
                )
                if is_trained and self._is_drawn_at_random:
                    self._adapt_templates(sample)
                self._is_drawn_at_random = False
            callbacks = _with_schedule(self, callbacks, sample, is_trained)
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

    @property
    def is_trained(self) -> bool:
        """Whether it has been trained to the end: its places compete hard."""
        return bool(ops.convert_to_numpy(part_caps(self).hardness) == 1.0)

    def _adapt_templates(self, sample: samples.Sample) -> None:
        """Lets templates be what the types of a trained network stand for."""
        images, _ = sample(_ADAPTED, 0)
        presence = self.learner().predict(images, verbose=0)["presence"]
        active = ops.convert_to_numpy(soft_activations(self, presence))
        if self.decoder and len(active) and active.max() > PRESENT:
            self.decoder.adapt(images, active)

    # ----------------------------------------------------------------- saving

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if self.decoder is not None:
            config["template_size"] = self.decoder.size
        return config

    @classmethod
    def from_config(cls, config: Any, custom_objects: Any = None) -> Any:
        config = dict(config)
        size = config.pop("template_size", None)
        model = super().from_config(config, custom_objects)
        if size is not None:
            model._make_decoder(size)
            model._is_drawn_at_random = False
        return model


class _Set:
    """Sets the model whose step is being computed."""

    def __init__(self, model: Any):
        self._model = model

    def __enter__(self) -> None:
        self._token = _in_step.set(self._model)

    def __exit__(self, *_: Any) -> None:
        _in_step.reset(self._token)


def part_caps(model: keras.Model) -> PartCaps:
    """Returns the layer that finds parts."""
    return graphs.only_layer(model, PartCaps)


def class_caps(model: keras.Model) -> ConstellationCaps:
    """Returns the layer that finds classes by their parts."""
    return graphs.only_layer(model, ConstellationCaps)


def soft_activations(model: ConstellationModel, presence: Tensor) -> Tensor:
    """Returns activations `[b, h, w, t]` as places compete in training."""
    layer = part_caps(model)
    if layer.per_type:
        return winners(presence, of_types(presence)[0], layer.window)
    return compete(presence, layer.window, layer.power)


def _losses_of(classes: ConstellationCaps) -> dict[str, keras.losses.Loss]:
    """Returns the losses that suit the class capsules."""
    if classes.shared:
        return constellation_losses()
    # Nothing but these keeps the parts of photos few and of one type.
    losses = constellation_losses(sparsity=0.05, ambiguity=0.1)
    del losses["reconstruction"]
    return losses


def _learner_of(model: ConstellationModel) -> keras.Model:
    more: dict[str, Any] = {}
    names = {part_caps(model): "presence", class_caps(model): "evidence"}

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if layer not in names:
            return layer(*args, **kwargs)
        beside = Beside(layer, f"return_{names[layer]}")
        *outputs, more[names[layer]] = beside(*args, **kwargs)
        return tuple(outputs) if outputs[1:] else outputs[0]

    plain = keras.Model(model.input, model.output, name=model.name)
    copy = graphs.clone_with_call(plain, call)
    outputs = {"lengths": copy.output, **more}
    if model.decoder is not None:
        drawn = model.decoder(soft_activations(model, more["presence"]))
        outputs["reconstruction"] = drawn
    return keras.Model(copy.input, outputs, name=model.name)


def _with_schedule(
    model: ConstellationModel, callbacks: Any, sample: Any, is_trained: bool
) -> Any:
    """Returns callbacks with what changes parts, the first."""
    is_list = isinstance(callbacks, keras.callbacks.CallbackList)
    every = callbacks.callbacks if is_list else callbacks
    if isinstance(every, keras.callbacks.Callback):
        every = [every]
    every = list(every or [])
    for callback in every:
        if isinstance(callback, HardenParts):
            if isinstance(callback, BlueprintEstimation):
                callback.sample = callback.sample or sample
            return callbacks if is_list else every
    if sample is None:
        schedule = HardenParts(1.0 if is_trained else _HARD_ON_BACKBONE)
    else:
        schedule = BlueprintEstimation()
        if is_trained:
            schedule = BlueprintEstimation(widths=None, hard=1.0, merge=None)
        schedule.sample = sample
    if not is_list:
        return [schedule, *every]
    callbacks.callbacks.insert(0, schedule)
    schedule.set_model(model)
    schedule.set_params(callbacks.params)
    return callbacks


@keras.saving.register_keras_serializable(package="tfcaps")
class Beside(keras.layers.Layer):
    """Calls a layer with one more output.

    Keras 3.15 builds no functional model in which a layer that returned fewer
    outputs before returns more, so a layer of its own makes the second call.

    Args:
        layer: The layer.
        flag: Its call argument that asks for the output.
        **kwargs: Arguments of `keras.layers.Layer`.
    """

    def __init__(self, layer: Any, flag: str, **kwargs: Any):
        kwargs.setdefault("autocast", False)
        super().__init__(**{"dtype": layer.dtype_policy, **kwargs})
        self.layer = layer
        self.flag = flag

    def call(self, *args: Any, **kwargs: Any) -> Any:
        return self.layer(*args, **{**kwargs, self.flag: True})

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        return self.layer.compute_output_spec(
            *args, **{**kwargs, self.flag: True}
        )

    def get_config(self) -> dict[str, Any]:
        layer = keras.saving.serialize_keras_object(self.layer)
        return {**super().get_config(), "layer": layer, "flag": self.flag}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Beside":
        layer = keras.saving.deserialize_keras_object(config["layer"])
        return cls(**{**config, "layer": layer})
