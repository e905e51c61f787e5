"""Commands that are called in the process of the tests."""

import contextlib
import io


def status_of(main, *arguments):
    """Returns the exit status of a command for these arguments."""
    try:
        return main([*map(str, arguments)])
    except SystemExit as stopped:
        return stopped.code


def told_by(main, *arguments, status=0):
    """Returns what a command prints that must end with this exit status.

    That is on stdout, or on stderr if it refuses something.
    """
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        ended = status_of(main, *arguments)
    assert ended == status, err.getvalue()
    return (err if status else out).getvalue()
