"""Errors of layers: wrong settings, and inputs that do not fit."""

import keras
import numpy as np

from tests.refusals import refused
from tfcaps import layers, parts, routing

NAMES = {
    **vars(layers),
    **vars(parts),
    **vars(routing),
    "Input": lambda *shape: keras.Input(shape),
    "zeros": lambda *shape: np.zeros(shape, "float32"),
}


test_wrong_settings_are_refused = refused(
    """
ClassCaps(0, 16)
    and `dim` must be integers of at least 1. Received: num_capsules=0, dim=16.
ConvCaps(3, 0, 2)
CapsuleConv2D(3, 0)
PrimaryCaps(3, 0, 3)
    and `dim` must be integers of at least 1. Received: num_types=3, dim=0.
ConvCaps3D(0, 4)
PrimaryMatrixCaps(0, 4)
    and `dim` must be integers of at least 1. Received: num_types=0, dim=4.
ClassCaps(10, 16, share="position")
    `share` must be one of (None, 'type', 'all'). Received: share='position'.
ClassCaps(10, 16, "none")
    `routing` must be a number of iterations
ClassCaps(2, 8, matrix=True)
    must be a square, such as 16 for 4x4. Received:
ClassCaps(2, 16, coordinates=True)
ClassCaps(2, 1, matrix=True, coordinates=True)
    are added to matrices of at least two rows. Received: matrix=
ConvCaps(3, 4, (2, 0))
    an int or two ints of at least 1. Received: kernel_size=(2, 0).
ConvCaps(3, 4, 2, (1, 1, 1))
    an int or two ints of at least 1. Received: strides=(1, 1, 1).
ConvCaps(3, 4, 2, padding="causal")
    `padding` must be one of ('valid', 'same'). Received: padding='causal'.
ConvCaps3D(2, 4, bias="all")
    `bias` must be one of (None, 'routing', 'votes'). Received: bias='all'.
ConvCaps3D(2, 4, squash="efficient")
    `squash` must be one of ('capsule', 'map'). Received: squash='efficient'.
ConvCaps3D(2, 4, routing="em")
ConvCaps3D(2, 4, routing="self_attention")
    takes a routing whose only weight is a bias of its parents. Received:
ConvCaps3D(2, 4, routing="uniform", squash="map")
    `squash="map"` is for DynamicRouting. Received: UniformRouting.
PrimaryCaps(2, 4, 3, squash="map")
Squash("map")
    `squash` must be one of ('hinton', 'efficient'). Received: squash='map'.
Decoder((28, 28))
Decoder((28, 0, 1))
Decoder(28)
    `image_shape` must be (rows, columns, channels). Received: image_shape=
Decoder((28, 28, 1), 5)
    `network` must be a name or a Keras layer. Received: network=5.
Decoder((28, 28, 1), "convolution")
    or a Keras layer. Received: network='convolution'.
Decoder((28, 30, 1), "deconvolution")
    needs sides divisible by 4. Received: image_shape=(28, 30, 1).
Decoder((16, 24, 1), "upsampling")
    needs sides of at least 24 that are divisible by 8. Received: image_shape=
PartCaps(0)
    `num_types` and `window` must be integers
PartCaps(2, window=4)
    `window` must be odd. Received: window=4.
PartCaps(2, stride=0)
    `stride` must be above 0. Received: stride=0.
TemplateDecoder((8, 8, 1), size=4)
    `size` must be odd. Received: size=4.
ConstellationCaps(3, stride=0)
ConstellationCaps(3, width=0)
ConstellationCaps(3, epsilon=1)
    must be above 0, and `epsilon` between 0 and 1. Received: width=
ConstellationCaps(3, max_of_type=0)
    `num_capsules` and `max_of_type` must be integers of at least 1.
ConstellationCaps(3, max_parts=0)
    `max_parts` must be integers of at least 1. Received: max_parts=0.
MapCaps(3, orphan=0)
    `orphan` must be above 0 nats. Received: orphan=0.
""",
    **NAMES,
)


test_inputs_that_do_not_fit_are_refused = refused(
    """
ClassCaps(10, 16)(Input(6, 6, 4))
ClassCaps(10, 16)(Input(None, 4))
ConvCaps(3, 4, 2)(Input(16, 2, 3))
ConvCaps(3, 4, 2)(Input(None, 4, 2, 3))
ConvCaps3D(2, 4)(Input(None, 4, 2, 3))
    types, components], all known but the batch. Received: input_shape=(None,
CapsuleConv2D(2, 4)(Input(5, 5, 6))
    CapsuleConv2D takes capsules [batch, rows, columns, types, components].
PrimaryCaps(2, 4, 3)(Input(5, 5))
    PrimaryCaps takes a feature map [batch, rows, columns, channels]. Received:
PrimaryMatrixCaps(2)(Input(4, 3))
    PrimaryMatrixCaps takes a feature map [batch, rows, columns, channels].
PartCaps(2)(Input(None, 4, 3))
    PartCaps takes a feature map [batch, rows, columns, channels], all known but
Decoder((4, 4, 1))(Input(2, 2, 3, 4))
    Decoder takes class poses [batch, classes, components], all known but
ClassCaps(10, 16, share="type")(Input(5, 4))
ClassCaps(2, 16, matrix=True, coordinates=True)(Input(12, 16))
    needs spatial capsules [batch, rows, columns, types, components]
ConvCaps(2, 16, 2, matrix=True)(Input(4, 4, 2, 9))
    keep their shape. Received: children of 9 components for dim=16.
ConvCaps(3, 4, (2, 5))(Input(4, 4, 2, 3))
    A window of (2, 5) does not fit into a map of 4 rows and 4 columns.
ConvCaps3D(2, 4, depth=4)(Input(4, 4, 2, 3))
    `depth` must be from 1 to the components of a child. Received: depth=4
PrimaryCaps(2, 4, 3, depthwise=True)(Input(5, 5, 6))
    Depthwise PrimaryCaps need num_types * dim channels, here 8. Received:
ConstellationCaps(3)(Input(8, 8, 2, 3))
    ConstellationCaps takes places
TemplateDecoder((9, 20, 1))(Input(4, 4, 2))
    Images must have a whole number of pixels for each place
ClassCaps(3, 4)(zeros(6, 4, 8), zeros(4, 6))
ClassCaps(3, 4)(zeros(6, 4, 8), zeros(6, 4, 1))
ConvCaps(3, 4, 3)(zeros(6, 3, 3, 2, 8), zeros(6, 3, 3, 6))
    `activations` must have the shape of the poses without its last axis.
""",
    **NAMES,
)
