"""Work over processes: they tell how far they are, and end when they are told or left alone."""

import contextlib
import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from multiprocessing.managers import SyncManager
from typing import Any

from autofl.errors import (
    ENDING,
    AutoFLError,
    end_with_parent,
    raise_when_told_to_end,
    starting_pythons,
)
from autofl.jobs.job import Make, OnProgress, Unit

_interrupted = False
"""Whether this worker was told to stop: its pool may have handed it another job already."""


def _pool_unit(make: "Make[Unit]", unit: Unit, tell: OnProgress) -> None:
    global _interrupted
    if _interrupted:
        raise KeyboardInterrupt
    try:
        raise_when_told_to_end()
        make(unit, tell)
    except KeyboardInterrupt:
        _interrupted = True
        raise
    finally:
        _note_when_told_to_end()


def _begin_worker() -> None:
    """Stop as told, and end when the process that started this one is gone: nobody would read its
    results.
    """
    _note_when_told_to_end()
    end_with_parent()
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _begin_manager() -> None:
    """What carries the words of workers must not end before them, though a signal to all processes
    reaches it too.
    """
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    end_with_parent()


def _note_when_told_to_end() -> None:
    """Between two jobs there is nothing to close: a worker that waits for the next one must not end
    in a traceback.
    """

    def note(number: int, _: object) -> None:
        global _interrupted
        _interrupted = True

    # A terminal sends its signal to all processes, and then the parent ends them too.
    for number in ENDING:
        signal.signal(number, note)


@contextlib.contextmanager
def _interrupt_later() -> Iterator[None]:
    """A terminal's signal waits until this is over, and in processes that are started here until
    they let it in.

    They import for seconds before they can listen, and would end in a traceback.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    with starting_pythons():
        resource_tracker.ensure_running()  # which lets signals in once it has started
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def over_processes(
    units: Sequence[Unit], make: "Make[Unit]", workers: int, tell: OnProgress
) -> None:
    """Make units over processes of their own; each has the same number of threads as a run alone."""
    context = multiprocessing.get_context("spawn")
    manager = SyncManager(ctx=context)
    with _interrupt_later(), starting_pythons():
        manager.start(_begin_manager)
    queue: Any = manager.Queue()
    others = set(multiprocessing.active_children())

    def tell_what_is_said() -> None:
        while not queue.empty():
            tell(queue.get())

    with ProcessPoolExecutor(workers, context, _begin_worker) as pool:
        with _interrupt_later(), starting_pythons():
            futures = {pool.submit(_pool_unit, make, unit, queue.put) for unit in units}
        try:
            while futures:
                done = {future for future in futures if future.done()}
                tell_what_is_said()
                for future in done:
                    future.result()
                futures -= done
                if futures and not done:
                    wait(futures, timeout=0.2, return_when=FIRST_COMPLETED)
        except BrokenProcessPool:
            raise AutoFLError(
                "a worker was killed, perhaps for lack of memory (--workers 1 needs least); --resume continues it"
            ) from None
        except BaseException as error:
            # A terminal has told the workers already, nobody else has.
            if isinstance(error, KeyboardInterrupt):
                for worker in set(multiprocessing.active_children()) - others:
                    worker.terminate()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        tell_what_is_said()
