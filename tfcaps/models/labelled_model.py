"""A network that may be told the labels, and need not be."""

from typing import Any

import keras


@keras.saving.register_keras_serializable(package="tfcaps")
class LabelledModel(keras.Model):
    """A functional model whose input `labels` is optional, in copies too.

    `keras.models.clone_model` of Keras 3.15 makes inputs anew and forgets that
    they are optional. It keeps the class of the model.

    Args:
        inputs: A dict with an input `labels`, among others.
        outputs: As in `keras.Model`.
        name: String. Name of the model.
        **kwargs: Arguments of `keras.Model`.
    """

    def __init__(
        self, inputs: Any, outputs: Any, name: str | None = None, **kwargs: Any
    ):
        super().__init__(inputs=inputs, outputs=outputs, name=name, **kwargs)
        for layer in self.layers:
            is_input = isinstance(layer, keras.layers.InputLayer)
            if is_input and layer.output is inputs["labels"]:
                layer.optional = True
