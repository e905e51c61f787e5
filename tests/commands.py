"""Commands that are called in the process of the tests."""


def status_of(main, *arguments):
    """Returns the exit status of a command for these arguments."""
    try:
        return main([*map(str, arguments)])
    except SystemExit as stopped:
        return stopped.code
