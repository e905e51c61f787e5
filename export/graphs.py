"""A model in the forms that converters to other formats read."""

import functools
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import keras
import tensorflow as tf

from export.formats import OUTPUTS
from export.saved_model import Signature
from export.signatures import all_outputs, write_saved_model
from tfcaps.routing.loop import unrolled


class Graphs:
    """A model as SavedModels in a folder that is removed at the end.

    They hold whole weights, because no other runtime can unpack those of
    `export/packed.py`, and no loops. Each is written when it is first asked
    for.

    Args:
        model: A functional or sequential model with a routed layer.
        images: As in `write_saved_model`.
    """

    def __init__(self, model: keras.Model, images: str):
        self._model = model
        self._images = images
        self._work = tempfile.TemporaryDirectory()

    def __enter__(self) -> "Graphs":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._work.cleanup()

    @functools.cached_property
    def with_signatures(self) -> Path:
        """Folder of a SavedModel with all signatures."""
        folder = Path(self._work.name) / "signatures"
        with unrolled():
            write_saved_model(self._model, folder, self._images, packed=False)
        return folder

    @functools.cached_property
    def whole(self) -> Path:
        """Folder of a SavedModel with one signature that has all outputs."""
        folder = Path(self._work.name) / "whole"
        weights, function = self._function
        tf.saved_model.save(weights, str(folder), function)
        return folder

    @property
    def function(self) -> Any:
        """The function from images to all outputs."""
        return self._function[1]

    def describe(self) -> dict[str, Any]:
        """Returns what the signatures take and return, for the manifest."""
        concrete = self.function.get_concrete_function()
        [images] = concrete.inputs[:1]
        outputs = _forms(concrete.structured_outputs)
        return {
            name: Signature(
                name,
                _forms({"images": images}),
                {key: outputs[key] for key in keys if key in outputs},
                {},
                {},
            ).to_dict()
            for name, keys in OUTPUTS.items()
        }

    @functools.cached_property
    def _function(self) -> tuple[tf.Module, Any]:
        return all_outputs(self._model, self._images)


def _forms(tensors: dict[str, Any]) -> dict[str, tuple[str, list[int]]]:
    return {
        name: (
            tensor.dtype.name,
            [-1 if size is None else size for size in tensor.shape],
        )
        for name, tensor in tensors.items()
    }
