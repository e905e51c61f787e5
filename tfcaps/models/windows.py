"""A frozen backbone on windows of an image, which see nothing around them."""

import importlib
from typing import Any

import keras
from keras import ops

from tfcaps import graphs
from tfcaps.models.backbone import FrozenModel, check_backbone
from tfcaps.ops import Tensor

# Layers whose output is a sum or a list of what came before.
_JOINTS = (keras.layers.Add, keras.layers.Concatenate)


@keras.saving.register_keras_serializable(package="tfcaps")
class BackboneWindows(FrozenModel):
    """Runs a trained network on windows of an image, each by itself.

    A place of the map sees the pixels of its window and no others, whatever the
    network is: the features are local by construction. At the border a window
    sees the mirrored image, and nothing that it does not have.

    The model is one from a window `[b, side, side, c]` to a deep map, and to a
    finer one, see `two_maps`. A `step` is in pixels; images of other `sides`
    are resized.

    Input shape:
        `[b, rows, columns, c]`.

    Output shape:
        `[b, h, w, deep + (r + 2 m)^2 fine]`, float32, a place for each step:
        the mean of the deep map over a window, and the places of the finer map
        in its middle, row by row: `r x r`, and a `margin` of `m` around them.
    """

    def __init__(
        self, model: keras.Model, step: int, sides: Any, **kwargs: Any
    ):
        super().__init__(model, **kwargs)
        self.step = step
        self.sides = tuple(sides)

    @property
    def window(self) -> int:
        """Rows and columns of a window, in pixels."""
        return int(self.model.inputs[0].shape[1])

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of windows."""
        rows, columns = self.sides
        return rows // self.step, columns // self.step

    @property
    def calls_a_sample(self) -> int:
        """How often the model runs for an image."""
        rows, columns = self.grid
        return rows * columns

    @property
    def ratio(self) -> int:
        """Places of the finer map along a step."""
        return self.step * int(self.model.outputs[1].shape[1]) // self.window

    @property
    def margin(self) -> int:
        """Places of the finer map around those of a step: 1, or 0."""
        rows = int(self.model.outputs[1].shape[1])
        return min(1, (rows - self.ratio) // 2)

    @property
    def rows(self) -> int:
        """Rows and columns of the finer map that a place has."""
        return self.ratio + 2 * self.margin

    @property
    def fine(self) -> int:
        """Channels of the finer map."""
        return int(self.model.outputs[1].shape[-1])

    def call(self, inputs: Tensor) -> Tensor:
        features = self.features_of(self.windows(inputs))
        return ops.reshape(features, (-1, *self.grid, self.size))

    def windows(self, images: Tensor) -> Tensor:
        """Returns the windows of images, row by row, `[n, side, side, c]`."""
        if tuple(images.shape[1:3]) != self.sides:
            images = ops.image.resize(
                images, self.sides, data_format="channels_last"
            )
        (rows, columns), step, side = self.grid, self.step, self.window
        pad = (side - step) // 2
        images = ops.pad(
            images, [(0, 0), (pad, pad), (pad, pad), (0, 0)], mode="reflect"
        )
        windows = ops.stack(
            [
                images[
                    :, y * step : y * step + side, x * step : x * step + side
                ]
                for y in range(rows)
                for x in range(columns)
            ],
            axis=1,
        )
        return ops.reshape(windows, (-1, side, side, images.shape[-1]))

    def features_of(self, windows: Tensor) -> Tensor:
        """Returns the features of windows, each by itself, `[n, size]`."""
        deep, fine = self.model(windows, training=False)
        first = (int(fine.shape[1]) - self.rows) // 2
        middle = slice(first, first + self.rows)
        size = self.rows**2 * self.fine
        fine = ops.reshape(fine[:, middle, middle], (-1, size))
        return ops.concatenate([ops.mean(deep, axis=(1, 2)), fine], axis=-1)

    def around(self, model: keras.Model) -> "BackboneWindows":
        return BackboneWindows(model, self.step, self.sides)

    # No property, as Keras saves the layers that properties give.
    def first_layers(self) -> list[keras.layers.Layer]:
        """The layers that make one of the windows, and what it goes through."""
        how: Any = {"data_format": "channels_last"}
        resize = keras.layers.Resizing(*self.sides, **how)
        crop = keras.layers.CenterCrop(self.window, self.window, **how)
        return [resize, crop, self.model]

    @property
    def equivalent_layers(self) -> list[keras.layers.Layer]:
        """The layers that see the same, for `tfcaps.rem.receptive_fields`."""
        how: Any = {"data_format": "channels_last"}
        resize = keras.layers.Resizing(*self.sides, **how)
        pool = keras.layers.MaxPooling2D(
            self.window, self.step, padding="same", **how
        )
        return [resize, pool, keras.layers.Dense(self.size)]

    def multiply_adds(self, input_shape: Any) -> int:
        """Counts those of all windows, see `tfcaps.rem.multiply_adds`."""
        del input_shape
        # `rem` measures what `models` build, and is loaded where it is wanted.
        rem: Any = importlib.import_module("tfcaps.rem")
        return self.calls_a_sample * int(rem.multiply_adds(self.model).total)

    @property
    def size(self) -> int:
        """Features of a place."""
        deep = int(self.model.outputs[0].shape[-1])
        return deep + self.rows**2 * self.fine

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (input_shape[0], *self.grid, self.size)

    def whole(self) -> keras.Model:
        """Returns the network on whole images: a deep map and a finer one."""
        return at_size(self.model, self.sides)


def windows_of(
    backbone: keras.Model, share: float, shape: tuple[int, int, int]
) -> BackboneWindows:
    """Returns the layer of windows of a backbone.

    Their side is a share of an image's, whose shape is the backbone's if that
    says it.
    """
    check_backbone(backbone)
    sides = [
        size or own
        for size, own in zip(backbone.inputs[0].shape[1:3], shape, strict=False)
    ]
    whole = two_maps(at_size(backbone, sides))
    places, finer = (tuple(x.shape[1:3]) for x in whole.outputs)
    steps = {n / m for n, m in zip(sides, places, strict=True)}
    step = steps.pop()
    if steps or step != int(step) or finer[0] % places[0]:
        raise ValueError(
            "A backbone for windows must make a map whose places are as many "
            "pixels apart in rows and in columns, and these a whole number. "
            f"Received: maps of {places} and {finer} of images of "
            f"{tuple(sides)}."
        )
    count = max(1, round(share * min(places)))
    if (count - 1) * finer[0] // places[0] % 2:
        count -= 1  # its middle is then one of the finer map
    side = count * int(step)
    model = at_size(whole, (side, side))
    return BackboneWindows(
        model, int(step), sides, dtype="float32", name="backbone"
    )


def two_maps(model: keras.Model) -> keras.Model:
    """Returns a model of the deep map of a network, and of a finer one.

    That is the last sum or list of twice its rows, or else the last map of as
    many, or else the deep map once more. They may be in a model within it.
    """
    last = model.layers[-1]
    pair: Any = None
    if isinstance(last, keras.Model):
        pair = two_maps(last)
    found: list[Any] = []

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if layer is last and pair is not None:
            found[:] = pair(*args, **kwargs)
            return found[0]
        return layer(*args, **kwargs)

    copy = graphs.clone_with_call(graphs.functional(model), call)
    if pair is None:
        deep = copy.outputs[0]
        rows = 2 * int(deep.shape[1])
        _, calls = graphs.calls_of(copy)
        finer = [
            (layer, layer.output)
            for layer in copy.layers
            if len(layer.output.shape) == 4 and layer.output.shape[1] == rows
        ]
        joints = [x for layer, x in finer if isinstance(layer, _JOINTS)]
        every = joints or [x for _, x in finer] or [deep]
        found = [deep, every[-1]]
    return keras.Model(copy.input, found, name=model.name)


def at_size(model: keras.Model, sides: Any) -> keras.Model:
    """Returns a copy of a model for images of another size."""
    config = _at_size(model.get_config(), tuple(sides))
    copy = type(model).from_config(config)
    copy.set_weights(model.get_weights())
    return copy


def _at_size(value: Any, sides: tuple[int, int]) -> Any:
    """Returns a config whose input layers have other sizes."""
    if isinstance(value, dict):
        new = {
            key: _at_size(each, sides)
            for key, each in value.items()
            if key != "build_config"  # of the size before
        }
        shape = new.get("batch_shape")
        if shape is not None and len(shape) == 4:
            new["batch_shape"] = (None, *sides, shape[-1])
        return new
    if isinstance(value, (list, tuple)):
        return type(value)(_at_size(each, sides) for each in value)
    return value
