"""Settings of version 0.3, which saved layers still have."""

from typing import Any


def without_former(
    kind: type, config: dict[str, Any], only: dict[str, Any], *ignored: str
) -> dict[str, Any]:
    """Returns a config without settings that a layer no longer has.

    Args:
        kind: Class of the layer.
        config: Config of a layer, of this version or the former one.
        only: Those of which one value is left, and it.
        *ignored: Those that do not change what a trained layer does.

    Raises:
        ValueError: If a setting has another value.
    """
    for name, value in only.items():
        if config.get(name, value) != value:
            raise ValueError(
                f"`{name}` of {kind.__name__} must be {value!r}. Received: a "
                f"layer of version 0.3 with {name}={config[name]!r}. Load it "
                "with that version."
            )
    gone = {*only, *ignored}
    return {name: v for name, v in config.items() if name not in gone}
