"""Routings, and `get`, which makes one from what a user writes.

`import X as X` exports a name: a routing of one's own needs its file and one
such line.
"""

from typing import Any

import keras

from tfcaps.ops import is_integer as _is_integer
from tfcaps.routing.dynamic import DynamicRouting as DynamicRouting
from tfcaps.routing.em import EMRouting as EMRouting
from tfcaps.routing.regularized import RegularizedRouting as RegularizedRouting
from tfcaps.routing.routing import Routing as Routing
from tfcaps.routing.routing import Weight as Weight
from tfcaps.routing.scaled_distance import (
    ScaledDistanceRouting as ScaledDistanceRouting,
)
from tfcaps.routing.self_attention import (
    SelfAttentionRouting as SelfAttentionRouting,
)
from tfcaps.routing.uniform import UniformRouting as UniformRouting

# A routing called `name` is the class in `tfcaps/routing/name.py`.
_NAMES: dict[str, type[Routing]] = {
    routing.__module__.rpartition(".")[2]: routing
    for routing in Routing.__subclasses__()
}


def get(identifier: int | str | dict[str, Any] | Routing) -> Routing:
    """Returns a routing.

    Args:
        identifier: An int (dynamic routing with that many iterations), a name
            such as `"dynamic"` or `"em"`, a config made by `serialize`, or a
            `Routing`, which is returned as it is.

    Raises:
        ValueError: If the identifier is none of these.
        TypeError: If a config names a class that Keras does not know.
    """
    routing: Any = identifier
    if _is_integer(identifier):
        return DynamicRouting(iterations=routing)
    if isinstance(identifier, str) and identifier in _NAMES:
        return _NAMES[identifier]()
    if isinstance(identifier, dict):
        routing = keras.saving.deserialize_keras_object(identifier)
    if isinstance(routing, Routing):
        return routing
    raise ValueError(
        "`routing` must be a number of iterations, one of the names "
        f"{sorted(_NAMES)}, a config or a `tfcaps.routing.Routing`. Received: "
        f"routing={identifier!r}."
    )


def serialize(routing: Routing) -> dict[str, Any]:
    """Returns a config from which `get` makes an equal routing."""
    config: dict[str, Any] = keras.saving.serialize_keras_object(routing)
    return config
