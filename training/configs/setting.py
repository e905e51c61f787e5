"""Declares a setting of a run once: default, meaning, limits and flag."""

import argparse
import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import cli

_KEY = "setting"


@dataclasses.dataclass(frozen=True)
class Setting:
    """All that is known of a setting besides its name, type and default.

    Attributes:
        about: What it is; the help of its flag, if it has one.
        low: Least value, or `None` for any.
        high: Greatest value, or `None` for any.
        choices: The values it may have; none for any.
        group: Title of its flag in `--help`, or `None` for no flag.
        flag: The flag, or `None` for the setting's own name.
        metavar: What stands for the value in `--help`.
        read: Function from the flag's text to the value, for those that are
            neither numbers, texts nor switches.
        both_ways: There is a flag that switches it off, too.
        off_only: The flag switches it off.
        rem: Only REM uses it.
        before: What it was like before there was this setting, if that is not
            its default: what a saved file that predates it has.
    """

    about: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    group: str | None = None
    flag: str | None = None
    metavar: str | None = None
    read: Callable[[str], Any] | None = None
    both_ways: bool = False
    off_only: bool = False
    rem: bool = False
    before: Any = None


def setting(default: Any, about: str, **more: Any) -> Any:
    """Returns the dataclass field of a setting, see `Setting`."""
    return dataclasses.field(
        default=default, metadata={_KEY: Setting(about, **more)}
    )


def settings_of(config: type) -> dict[str, Setting]:
    """Returns the settings of a dataclass by name."""
    fields = dataclasses.fields(config)
    return {field.name: field.metadata[_KEY] for field in fields}


def before(config: type) -> dict[str, Any]:
    """Returns the settings that a saved file has that names none."""
    return {
        field.name: field.default
        if field.metadata[_KEY].before is None
        else field.metadata[_KEY].before
        for field in dataclasses.fields(config)
    }


def of_right_types(config: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings read from JSON in the types that they are declared in.

    JSON has no tuples, and writes some floats as whole numbers.

    Raises:
        ValueError: If a setting is of another type.
    """
    declared = typing.get_type_hints(config)
    right = {}
    for name, value in settings.items():
        kinds = _kinds(declared[name])
        if isinstance(value, list):
            value = tuple(value)
        if type(value) is int and float in kinds:
            value = float(value)
        if not isinstance(value, kinds) or (
            # A bool is an int to Python.
            isinstance(value, bool) and bool not in kinds
        ):
            raise ValueError(f"{name} is {value!r}, of another type")
        right[name] = value
    return right


def check_limits(config: type, settings: Mapping[str, Any]) -> None:
    """Raises `ValueError` unless all settings, by name, are within limits."""
    for name, known in settings_of(config).items():
        value = settings[name]
        if known.choices and value not in known.choices:
            raise ValueError(
                f"{name} is {value!r}; it must be one of "
                f"{', '.join(known.choices)}"
            )
        if known.low is None:
            continue
        for number in value if isinstance(value, tuple) else (value,):
            # Written so that NaN is outside.
            if number is not None and not (
                known.low <= number
                and (known.high is None or number <= known.high)
            ):
                limits = f"at least {known.low}"
                if known.high is not None:
                    limits = f"from {known.low} to {known.high}"
                raise ValueError(f"{name} is {number!r}; it must be {limits}")


def add_flags(
    config: type, group: str, add: Callable[..., argparse.Action]
) -> None:
    """Adds the flags of a group of settings, in the order of declaration.

    A flag that is not given is `None`.
    """
    declared = typing.get_type_hints(config)
    for name, known in settings_of(config).items():
        if known.group == group:
            flag = f"--{(known.flag or name).replace('_', '-')}"
            add(
                flag,
                dest=name,
                help=known.about,
                **_action(known, declared[name]),
            )


def _action(known: Setting, declared: Any) -> dict[str, Any]:
    """Returns the arguments of `add_argument` that say what a flag takes."""
    if known.off_only:
        return {"action": "store_const", "const": False}
    if known.both_ways:
        return {"action": argparse.BooleanOptionalAction}
    if declared is bool:
        return {"action": "store_const", "const": True}
    if known.choices:
        return {"choices": known.choices}
    return {
        "type": known.read or _reader(known, declared),
        "metavar": known.metavar,
    }


def _reader(known: Setting, declared: Any) -> Callable[[str], Any]:
    """Returns the function that reads a flag's text within its limits."""
    (kind,) = set(_kinds(declared)) - {types.NoneType}
    if kind is str:
        return str
    if known.low is None:
        raise TypeError(f"a number with a flag needs limits: {known.about}")
    low, high = known.low, known.high
    return lambda text: cli.number(text, kind, low, high)


def _kinds(declared: Any) -> tuple[type, ...]:
    """Returns the classes of the values that a declared type allows."""
    options = (
        typing.get_args(declared)
        if isinstance(declared, types.UnionType)
        else (declared,)
    )
    return tuple(typing.get_origin(option) or option for option in options)
