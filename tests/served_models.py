"""SavedModels in folders as TensorFlow Serving wants them, and their answers.

Folders are `<base>/<name>/<version>/`. Messages and status codes are those of
the server's sources.
"""

import threading

import grpc
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import get_model_metadata_pb2


class ServingError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def invalid(message):
    return ServingError(grpc.StatusCode.INVALID_ARGUMENT, message)


class Models:
    """The models of a folder, each loaded when first asked for."""

    def __init__(self, base):
        self._base = base
        self._loaded = {}
        self._lock = threading.Lock()

    def versions(self, name):
        folder = self._base / name
        children = folder.iterdir() if folder.is_dir() else ()
        return sorted(int(p.name) for p in children if p.name.isdecimal())

    def find(self, name, version=None):
        """Returns a version of a model, the newest by default."""
        asked = f"Latest({name})"
        if version is not None:
            asked = f"Specific({name}, {version})"
        known = self.versions(name)
        if not known or version not in (None, *known):
            raise ServingError(
                grpc.StatusCode.NOT_FOUND,
                f"Servable not found for request: {asked}",
            )
        version = known[-1] if version is None else version
        with self._lock:
            if (name, version) not in self._loaded:
                folder = self._base / name / str(version)
                self._loaded[name, version] = _Model(folder)
            return self._loaded[name, version]


class _Model:
    def __init__(self, folder):
        self.name = folder.parent.name
        self.version = int(folder.name)
        saved = saved_model_pb2.SavedModel()
        saved.ParseFromString((folder / "saved_model.pb").read_bytes())
        (graph,) = (
            graph
            for graph in saved.meta_graphs
            if list(graph.meta_info_def.tags) == ["serve"]
        )
        self.definitions = dict(graph.signature_def)
        self._model = tf.saved_model.load(str(folder))

    def definition_map(self):
        return get_model_metadata_pb2.SignatureDefMap(
            signature_def=self.definitions
        )

    def predict(self, name, inputs):
        """Returns the outputs of a signature, arrays by their names."""
        definition = self.definitions[name]
        tensors = {}
        for key, info in definition.inputs.items():
            shape = [side.size for side in info.tensor_shape.dim]
            value = inputs[key]
            if tf.as_dtype(value.dtype).as_datatype_enum != info.dtype:
                raise invalid(f"input {key} has the wrong type")
            if not tf.TensorShape(
                [None if side < 0 else side for side in shape]
            ).is_compatible_with(value.shape):
                # The graph says so, in other words for each operation.
                raise invalid(
                    f"input {key} has the shape {list(value.shape)}, which is "
                    f"not {shape}"
                )
            tensors[key] = tf.constant(value)
        outputs = self._model.signatures[name](**tensors)
        return {key: outputs[key].numpy() for key in sorted(outputs)}
