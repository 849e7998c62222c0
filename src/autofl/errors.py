"""The one exception for what a user can mend."""


class AutoFLError(Exception):
    """Bad input: one line that says what is wrong and what to do next.

    The command line prints it without a traceback and exits with status 2.
    """
