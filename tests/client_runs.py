"""Networks for the example client to ask, and what it prints of answers."""

import numpy as np
import tensorflow as tf
from PIL import Image

from export import client
from tests.commands import status_of
from tests.networks import tiny_capsnet
from tfcaps.export.networks import write_saved_model
from tfcaps.rem import capsule_outputs

CLASSES = ["cat", "dog", "owl", "yak"]


def _randomise(model, seed):
    """Gives each class another length, which untrained networks do not."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape) * 0.5)
    return model


class _Odd(tf.Module):
    """A signature that is not for images."""

    @tf.function(input_signature=[tf.TensorSpec((None, 2), name="x")])
    def points(self, x):
        return {"y": x + 1}


def make_networks():
    """Returns networks by the name and version under which they are served."""
    return {
        ("grey", 1): _randomise(tiny_capsnet(4), 1),
        ("grey", 3): _randomise(tiny_capsnet(4), 3),
        ("bytes", 1): _randomise(tiny_capsnet(4), 2),
    }


def write(networks, base):
    """Writes the networks into a folder to serve, and a model that is none."""
    for (name, version), model in networks.items():
        (base / name).mkdir(exist_ok=True)
        dtype = "uint8" if name == "bytes" else "float32"
        folder = base / name / str(version)
        write_saved_model(model, folder, dtype)
    (base / "grey" / ".publish-9").mkdir()
    odd = _Odd()
    signatures = {"points": odd.points}
    tf.saved_model.save(odd, str(base / "odd" / "1"), signatures)


def write_images():
    """Writes `digit.png` into the working folder."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (8, 8), np.uint8)
    Image.fromarray(pixels).save("digit.png")


def run(*arguments):
    """Returns the exit status of the command."""
    return status_of(client.main, *arguments)


def expected(model, pixels):
    """Returns what a network answers to uint8 images."""
    outputs = capsule_outputs(model)(pixels.astype("float32") / 255)
    return {key: np.asarray(value) for key, value in outputs.items()}


def line(name, lengths, names=CLASSES):
    """Returns the printed line for an image."""
    best = np.argsort(-lengths)[:3]
    return f"{name}: " + ", ".join(f"{names[k]} {lengths[k]:.3f}" for k in best)
