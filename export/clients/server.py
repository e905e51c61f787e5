"""A server's models and signatures, and images of the type that they take."""

import abc
import dataclasses
import textwrap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cli import UserError

Array = NDArray[Any]
Outputs = dict[str, Array]

_DTYPES = {"DT_FLOAT": "float32", "DT_UINT8": "uint8", "DT_INT64": "int64"}
# What a status means, by gRPC's names, and what to do.
_PROBLEMS = {
    "NOT_FOUND": "has no such model or version; give one that it serves",
    "UNAVAILABLE": "does not answer; start the server or give another address",
    "DEADLINE_EXCEEDED": "took too long; give a longer timeout or fewer images",
}


class ClientError(UserError):
    """What went wrong and what to do."""


class Signature(NamedTuple):
    """What a signature takes and returns.

    Attributes:
        name: What it is called.
        shape: Rows, columns and channels of an image.
        dtype: `"uint8"` for pixels from 0 to 255, or `"float32"` for [0, 1].
        outputs: Type of each output, `None` for one that is not known here.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    outputs: dict[str, str | None]


def as_input(images: Array, signature: Signature) -> Array:
    """Returns images `[b, h, w, c]` in the type that the server wants.

    Args:
        images: Uint8 in 0..255, or float in [0, 1].
        signature: What takes them.

    Raises:
        ClientError: If their shape or their numbers do not fit.
    """
    if images.shape[1:] != signature.shape or not len(images):
        raise ClientError(
            f"the model takes images {signature.shape} (rows, columns, "
            f"channels) or a batch of them, not {images.shape}."
        )
    wants_bytes = signature.dtype == "uint8"
    if images.dtype == np.uint8:
        return images if wants_bytes else images / np.float32(255)
    if images.dtype.kind != "f" or not ((images >= 0) & (images <= 1)).all():
        raise ClientError(
            "pixels must be uint8, 0 to 255, or float, all from 0 to 1; these "
            f"are {images.dtype} and not so."
        )
    images = images.astype(np.float32)
    return np.rint(images * 255).astype(np.uint8) if wants_bytes else images


@dataclasses.dataclass
class Server(abc.ABC):
    """A model of a server; subclasses say how it is asked.

    Attributes:
        address: Where the server is.
        model: Name of the model.
        version: Int, or `None` for the server's choice, the newest.
        timeout: Seconds to wait for an answer.
    """

    address: str
    model: str
    version: int | None
    timeout: float

    @abc.abstractmethod
    def definitions(self) -> dict[str, Any]:
        """Returns all signatures, as the server describes them in JSON."""

    @abc.abstractmethod
    def run(self, images: Array, signature: Signature) -> Outputs:
        """Returns the outputs for images of the right type."""

    def predict(self, images: Array, signature: str | Signature) -> Outputs:
        """Returns the outputs for images `[b, h, w, c]`.

        Args:
            images: Uint8 in 0..255, or float in [0, 1].
            signature: Its name, or what `signature` returned for it.

        Raises:
            ClientError: If no outputs come, or the images do not fit.
        """
        if isinstance(signature, str):
            signature = self.signature(signature)
        return self.run(as_input(images, signature), signature)

    def signature(self, name: str) -> Signature:
        """Returns what a signature takes and returns.

        Raises:
            ClientError: If there is none, or it does not take images alone.
        """
        # The one that initialises a model has no inputs and is not meant.
        known = {k: d for k, d in self.definitions().items() if d.get("inputs")}
        if name not in known:
            names = ", ".join(sorted(known))
            raise ClientError(f"there is no signature {name!r}, but {names}.")
        inputs, outputs = known[name]["inputs"], known[name]["outputs"]
        images = inputs.get("images", {"dtype": "", "tensor_shape": {}})
        sides = images["tensor_shape"].get("dim", [])
        shape = tuple(int(side["size"]) for side in sides)[1:]
        dtype = _DTYPES.get(images["dtype"])
        if dtype not in ("float32", "uint8") or len(shape) != 3 or -1 in shape:
            raise ClientError(
                f"signature {name!r} does not take just images of known size "
                "as DT_FLOAT or DT_UINT8, and this client sends nothing else."
            )
        types = {k: _DTYPES.get(outputs[k]["dtype"]) for k in sorted(outputs)}
        return Signature(name, shape, dtype, types)

    def error(self, status: str, message: str | None) -> ClientError:
        """Returns the error for a status, with the server's own words."""
        problem = _PROBLEMS.get(status, f"answers {status}")
        words = textwrap.shorten(message or "it does not say why.", 400)
        return ClientError(f"{self.address} {problem}: {words}")
