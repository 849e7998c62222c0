"""One writer for a folder, whatever becomes of the others."""

import os
import subprocess
import sys

import pytest

from autofl.errors import AutoFLError
from autofl.lock import FolderLock, Locked, is_locked, locked, overrule

pytestmark = pytest.mark.slow

HOLD = "import sys; from autofl.lock import FolderLock; lock = FolderLock(sys.argv[1]); print('held', flush=True); sys.stdin.read()"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr("autofl.lock.PATIENCE", 0.0)


def test_a_second_writer_is_refused_until_the_first_is_done(tmp_path):
    with FolderLock(tmp_path / "run"):
        assert is_locked(tmp_path / "run")
        with pytest.raises(Locked, match="another process writes into it"):
            FolderLock(tmp_path / "run")
    assert not is_locked(tmp_path / "run")
    FolderLock(tmp_path / "run").release()


def test_a_lock_ends_with_its_process_however_that_ends(tmp_path):
    words = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        assert is_locked(tmp_path)
        holder.kill()
    assert not is_locked(tmp_path)


def test_who_was_overruled_stops_before_its_next_write(tmp_path):
    first = FolderLock(tmp_path)
    first.check()
    overrule(tmp_path)
    with FolderLock(tmp_path) as second:
        second.check()
        with pytest.raises(AutoFLError, match="taken it over"):
            first.check()
    first.release()


def test_whoever_only_looks_makes_no_file_and_needs_no_right_to_write(tmp_path):
    assert not is_locked(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with FolderLock(tmp_path):
        os.chmod(tmp_path / ".lock", 0o444)
        assert is_locked(tmp_path)


def test_half_written_files_are_cleared_by_whoever_holds_the_lock(tmp_path):
    (tmp_path / ".manifest.json.0123.part").write_text("{")
    with locked(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
