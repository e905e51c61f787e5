"""The graph of an export: what a server cannot run is caught by name."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from cli import UserError
from export import session
from export.model import export_model
from export.saved_model import Signature, check_graph
from tests.networks import tiny_capsnet


class Calling(keras.layers.Layer):
    """Calls a function that no server can."""

    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = function

    def call(self, inputs):
        outputs = self.function(inputs)
        outputs.set_shape(inputs.shape)
        return outputs

    def compute_output_shape(self, input_shape):
        return input_shape


def network_with(layer, **settings):
    images = keras.Input((8, 8, 1), name="images", **settings)
    capsnet = tiny_capsnet()
    return keras.Model(images, rebuilt(capsnet, layer(images)))


def rebuilt(capsnet, tensor):
    for layer in capsnet.layers[1:]:
        tensor = layer(tensor)
    return tensor


def double_in_python(images):
    return tf.numpy_function(lambda x: 2 * x, [images], tf.float32)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            tf.function(lambda x: 2 * x, jit_compile=True),
            "graph: .* must be compiled by XLA",
        ),
        (double_in_python, "graph: .* calls a Python function .*PyFunc"),
        (
            lambda x: tf.py_function(lambda y: 2 * y, [x], tf.float32),
            "graph: .* calls a Python function .*EagerPyFunc",
        ),
    ],
    ids=["xla", "numpy_function", "py_function"],
)
def test_what_needs_xla_or_python_is_not_exported(tmp_path, function, message):
    model = network_with(Calling(function))
    with pytest.raises(UserError, match=f"^{message}"):
        export_model(model, tmp_path / "served", name="m", compacted=False)
    assert not (tmp_path / "served").exists()


def saved(folder, function, shape, dtype=tf.float32, names=None):
    """Writes a SavedModel of one function under all signatures."""
    spec = tf.TensorSpec(shape, dtype, name="images")
    traced = tf.function(function, [spec], autograph=False)
    names = names or ("serving_default", "explain", "encode")
    tf.saved_model.save(tf.Module(), str(folder), dict.fromkeys(names, traced))
    return folder


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shape": (4, 2)}, "batch: .* images has a batch of 4"),
        (
            {"shape": (None, 2), "function": lambda x: {"poses": x[:3]}},
            None,
        ),
        (
            {
                "shape": (None, 2),
                "function": lambda x: {"poses": tf.reshape(x, (3, -1))},
            },
            "batch: .* poses has a batch of 3",
        ),
        (
            {
                "shape": (None, 2),
                "function": lambda x: {"poses": tf.reduce_sum(x)},
            },
            "batch: .* poses has a batch missing",
        ),
        (
            {"shape": (None, None)},
            "graph: .* images is float32 .* do not expect",
        ),
        (
            {"shape": (None, 2), "dtype": tf.float16},
            "graph: .* images is float16",
        ),
        (
            {
                "shape": (None, 2),
                "function": lambda x: {"poses": tf.cast(x, tf.float16)},
            },
            "graph: .* poses is float16",
        ),
        (
            {"shape": (None, 2), "names": ("serving_default",)},
            "graph: .* must have the signatures",
        ),
    ],
)
def test_the_static_look_names_what_is_wrong(tmp_path, settings, message):
    function = settings.pop("function", lambda x: {"poses": x})
    folder = saved(tmp_path / "m", function, **settings)
    if message is None:
        check_graph(folder)
        return
    with pytest.raises(UserError, match=f"^{message}"):
        check_graph(folder)


def test_xla_is_found_without_running(tmp_path):
    inner = tf.function(lambda x: 2 * x, jit_compile=True)
    folder = saved(tmp_path / "m", lambda x: {"poses": inner(x)}, (None, 2))
    with pytest.raises(UserError, match="^graph: .* compiled by XLA"):
        check_graph(folder)


def functions_forget(graph):
    for function in graph.library.function:
        function.attr.pop("_XlaMustCompile", None)


def nodes_forget(graph):
    for holder in (graph, *graph.library.function):
        for node in getattr(holder, "node_def", None) or holder.node:
            node.attr.pop("_XlaMustCompile", None)


def only_launch(graph):
    functions_forget(graph)
    nodes_forget(graph)
    graph.node.add(name="compiled", op="XlaLaunch")


@pytest.mark.parametrize(
    "change", [functions_forget, nodes_forget, only_launch]
)
def test_every_sign_of_xla_is_enough(tmp_path, change):
    from tensorflow.core.protobuf import saved_model_pb2

    inner = tf.function(lambda x: 2 * x, jit_compile=True)
    folder = saved(tmp_path / "m", lambda x: {"poses": inner(x)}, (None, 2))
    path = folder / "saved_model.pb"
    content = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    change(content.meta_graphs[0].graph_def)
    path.write_bytes(content.SerializeToString())
    with pytest.raises(UserError, match="^graph: .* compiled by XLA"):
        check_graph(folder)


def test_a_server_with_xla_off_fails_where_python_would_not(tmp_path):
    inner = tf.function(lambda x: 2 * x, jit_compile=True)
    folder = saved(tmp_path / "m", lambda x: {"poses": inner(x)}, (None, 2))
    traced = tf.saved_model.load(str(folder)).signatures["encode"]
    assert traced(tf.ones((1, 2)))["poses"].numpy().tolist() == [[2.0, 2.0]]
    signature = Signature("encode", {}, {}, *tensors_of(folder, "encode"))
    images = np.ones((1, 2), "float32")
    request = session.Request(folder, signature, {"images": images})
    with pytest.raises(session.RunError, match="XLA compilation disabled"):
        session.run([request])


def tensors_of(folder, name):
    """Returns the names in the graph of what a signature takes and gives."""
    from tensorflow.core.protobuf import saved_model_pb2

    content = (folder / "saved_model.pb").read_bytes()
    [graph] = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    definition = graph.signature_def[name]
    return tuple(
        {key: tensor.name for key, tensor in tensors.items()}
        for tensors in (definition.inputs, definition.outputs)
    )


def test_a_file_that_is_no_graph_is_named(tmp_path):
    with pytest.raises(UserError, match="^graph: .* has no saved_model.pb"):
        check_graph(tmp_path)
    (tmp_path / "saved_model.pb").write_bytes(b"\xff" * 9)
    with pytest.raises(UserError, match="^graph: .* is no SavedModel"):
        check_graph(tmp_path)
