"""The one exception for what a user can mend, and the one for being told to end."""

import signal
import sys
import sysconfig
from pathlib import Path


class Terminated(KeyboardInterrupt):
    """The process was told to end by a signal other than the terminal's; its number is the exit status less 128."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


def raise_when_told_to_end() -> None:
    """From now on the usual signals to end raise `Terminated` once, so that what is open can be closed."""

    def end(number: int, _: object) -> None:
        for other in ENDING:
            signal.signal(other, signal.SIG_IGN)  # a second one must not stop the last words
        raise Terminated(number)

    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup has its reasons
            signal.signal(number, end)


ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


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
