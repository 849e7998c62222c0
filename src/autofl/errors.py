"""The one exception for what a user can mend."""

import sys
import sysconfig
from pathlib import Path


class AutoFLError(Exception):
    """Bad input: one line that says what is wrong and what to do next.

    The command line prints it without a traceback and exits with status 2.
    """


def in_own_code(error: BaseException) -> AutoFLError | None:
    """An error raised in a user's own part as one line that names the place; None where it was raised elsewhere."""
    ours = Path(__file__).parent
    libraries = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    place, trace = None, error.__traceback__
    while trace is not None:
        path = Path(trace.tb_frame.f_code.co_filename)
        if ours in path.parents:
            place = None  # what follows is called from here
        elif path.is_file() and not any(library in path.parents for library in libraries):
            place = f"{path.name}, line {trace.tb_lineno}"
        trace = trace.tb_next
    if place is None or "autofl" not in sys.modules:
        return None
    return AutoFLError(f"{type(error).__name__} in {place}: {error}")
