"""The one exception for what a user can mend, and the one for being told to end."""

import contextlib
import os
import signal
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread, Timer, current_thread, main_thread


class Terminated(KeyboardInterrupt):
    """The process was told to end by a signal; its number is the exit status less 128."""

    def __init__(self, number: int) -> None:
        by_user = number == signal.SIGINT
        super().__init__(
            "interrupted by a user" if by_user else f"ended by {signal.Signals(number).name}"
        )
        self.number = number

    def __reduce__(self) -> tuple[type["Terminated"], tuple[int]]:
        return Terminated, (self.number,)  # a worker's comes back to the process that started it


ENDING = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
LAST_WORDS = 10.0
"""Seconds for closing what is open; a signal that comes later ends the process at once."""
TOLD: list[int] = []
"""The signals that raised `Terminated`: a library may have made another error of it, as imports of
C code do.
"""


def raise_when_told_to_end() -> None:
    """From now on the usual signals to end raise `Terminated` once, so that what is open can be
    closed.
    """

    def end(number: int, _: object) -> None:
        patience = time.monotonic() + LAST_WORDS

        def pass_over(number: int, _: object) -> None:
            """A second signal must not stop the last words, unless they last."""
            if time.monotonic() > patience:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)

        for other in ENDING:
            signal.signal(other, pass_over)
        TOLD.append(number)
        raise Terminated(number)

    def listen() -> None:
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup has its reasons
                signal.signal(number, end)

    def again(raised: "sys.UnraisableHookArgs") -> None:
        """A signal may come while an object is destroyed, where Python drops exceptions: it is told
        once more.
        """
        if not isinstance(raised.exc_value, Terminated):
            return sys.__unraisablehook__(raised)
        listen()
        return Timer(0.1, os.kill, (os.getpid(), raised.exc_value.number)).start()

    TOLD.clear()
    listen()
    sys.unraisablehook = again


@contextlib.contextmanager
def ending_later() -> Iterator[None]:
    """A signal to end waits until this is over: what ends anyway is not stopped at its last words."""
    if current_thread() is not main_thread():
        yield
        return
    told: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: told.append(number)) for number in ENDING
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if told:
            os.kill(os.getpid(), told[0])


def end_if_told() -> None:
    """Raise `Terminated` once more where it was dropped on its way: a library may clear the errors
    of what it calls.
    """
    if TOLD:
        raise Terminated(TOLD[-1])


def end_with_parent() -> None:
    """From now on this process, one of `multiprocessing`, ends when the one that started it is
    gone.

    Here, so that a process that does nothing else need not import PyTorch.
    """
    from multiprocessing import parent_process

    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def starting_pythons() -> Iterator[None]:
    """Python processes that are started in here look for no module in the working folder, which may
    be a stranger's.

    `multiprocessing` starts them with `python -c`, which looks there first; its own path they get
    afterwards.
    """
    name = "PYTHONSAFEPATH"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


class AutoFLError(Exception):
    """Bad input: one line that says what is wrong and what to do next.

    The command line prints it without a traceback and exits with status 2.
    """


def setup_with(extra: str) -> str:
    """The command that installs an extra in a clone: the package is on no index, so pip knows
    nothing of its name.
    """
    return f"make setup EXTRAS={','.join(dict.fromkeys(('demo', 'dev', extra)))}"


def lacks(what: str, extra: str) -> AutoFLError:
    """What cannot be done without an extra."""
    return AutoFLError(
        f"{what} needs the extra {extra}; in the clone of AutoFL run: {setup_with(extra)}"
    )


OURS = ("autofl", "autofl_paper")
"""The packages of this distribution; code elsewhere is a user's own or a library's."""


def in_own_code(error: BaseException) -> AutoFLError | None:
    """An error raised in a user's own part as one line that names the place; None where it was
    raised elsewhere.
    """
    libraries = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    place = None
    trace = error.__traceback__
    while trace is not None:
        path = Path(trace.tb_frame.f_code.co_filename)
        if trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] in OURS:
            place = None  # what follows is called from here
        elif path.is_file() and not any(library in path.parents for library in libraries):
            place = f"{path.name}, line {trace.tb_lineno}"
        trace = trace.tb_next
    if place is None or "autofl" not in sys.modules:
        return None
    return AutoFLError(f"{type(error).__name__} in {place}: {error}")
