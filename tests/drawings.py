"""Records what figures are made of."""

import contextlib
import inspect

import pytest

from tfcaps import viz


@contextlib.contextmanager
def recorded():
    """Yields what figure functions of `tfcaps.viz` are given from now on.

    By the name of a function a list of its calls, each a dict of arguments.
    """
    calls = {}

    def recording(name, function):
        def record(*args, **kwargs):
            bound = inspect.signature(function).bind(*args, **kwargs)
            calls.setdefault(name, []).append(bound.arguments)
            return function(*args, **kwargs)

        return record

    with pytest.MonkeyPatch.context() as patch:
        for name, function in inspect.getmembers(viz, inspect.isfunction):
            patch.setattr(viz, name, recording(name, function))
        yield calls
