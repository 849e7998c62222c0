"""The one exception for what a user can mend, and the one for being told to end."""

import os
import signal
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from threading import Thread, Timer


class Terminated(KeyboardInterrupt):
    """The process was told to end by a signal other than the terminal's; its number is the exit status less 128."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number

    def __reduce__(self) -> tuple[type["Terminated"], tuple[int]]:
        return Terminated, (self.number,)  # a worker's comes back to the process that started it


def _pass_over(number: int, frame: object) -> None:
    """Ignore a signal: with SIG_IGN, one that is already on its way would be reported on the screen."""


ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


TOLD: list[int] = []
"""The signals that raised `Terminated`: a library may have made another error of it, as imports of C code do."""


def raise_when_told_to_end(signals: Sequence[int] = ENDING) -> None:
    """From now on the usual signals to end raise `Terminated` once, so that what is open can be closed."""

    def end(number: int, _: object) -> None:
        for other in signals:
            signal.signal(other, _pass_over)  # a second one must not stop the last words
        TOLD.append(number)
        raise Terminated(number)

    def listen() -> None:
        for number in signals:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup has its reasons
                signal.signal(number, end)

    def again(raised: "sys.UnraisableHookArgs") -> None:
        """A signal may come while an object is destroyed, where Python drops exceptions: it is told once more."""
        if not isinstance(raised.exc_value, Terminated):
            return sys.__unraisablehook__(raised)
        listen()
        return Timer(0.1, os.kill, (os.getpid(), raised.exc_value.number)).start()

    TOLD.clear()
    listen()
    sys.unraisablehook = again


def end_if_told() -> None:
    """Raise `Terminated` once more where it was dropped on its way: a library may clear the errors of what it calls."""
    if TOLD:
        raise Terminated(TOLD[-1])


def end_with_parent() -> None:
    """From now on this process, one of `multiprocessing`, ends when the one that started it is gone.

    Here, so that a process that does nothing else need not import PyTorch.
    """
    from multiprocessing import parent_process

    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


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
