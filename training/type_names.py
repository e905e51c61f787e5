"""What the types of a run's capsules are called: by hand, by kind, or numbers.

`names.json` in a run folder gives types names, those that it leaves out keep
what they have:

{"0": "wheel", "3": "window"}
"""

import json
from collections.abc import Sequence

from cli import UserError
from training.folder import RunFolder

FILE = "names.json"


def names(
    folder: RunFolder,
    count: int,
    kinds: Sequence[str | None] | None = None,
) -> list[str]:
    """Returns the names of `count` types.

    Args:
        folder: The run.
        count: Int. How many types there are.
        kinds: For each type the kind of part on which most of its leaves lie,
            or `None`, see `NamedParts.names`. Defaults to those in `rem.json`.

    Raises:
        UserError: If `names.json` is no list of names.
    """
    kinds = _measured(folder) if kinds is None else list(kinds)
    found = [f"type {k}" for k in range(count)]
    for k, kind in enumerate(kinds[:count]):
        found[k] = kind or found[k]
    for k, name in by_hand(folder).items():
        if k >= count:
            raise UserError(
                f"{folder.path / FILE} names type {k}, and the types are 0 to "
                f"{count - 1}."
            )
        found[k] = name
    return found


def by_hand(folder: RunFolder) -> dict[int, str]:
    """Returns what `names.json` says, nothing if there is none.

    Raises:
        UserError: If it is no list of names.
    """
    path = folder.path / FILE
    try:
        given = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _malformed(folder) from error
    if not isinstance(given, dict):
        raise _malformed(folder)
    for number, name in given.items():
        is_number = number.isascii() and number.isdigit()
        if not (is_number and isinstance(name, str) and name.strip()):
            raise _malformed(folder)
    return {int(number): name.strip() for number, name in given.items()}


def _malformed(folder: RunFolder) -> UserError:
    return UserError(
        f"{folder.path / FILE} must give names of types by their numbers, such "
        'as {"0": "wheel", "3": "window"}.'
    )


def _measured(folder: RunFolder) -> list[str | None]:
    """Returns the kinds that the run measured of its last model."""
    try:
        text = (folder.path / "rem.json").read_text("utf-8")
        model = json.loads(text)["models"][folder.config.model_names[-1]]
        return list(model["named_parts"]["names"] or ())
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return []  # of an older version
