"""Files written byte by byte from the formats' descriptions, and the real data sets where they are
here.
"""

import gzip
import hashlib
import http.server
import threading
from functools import partial

import numpy as np
import pytest

from autofl.config import load_settings
from autofl.data import (
    CATALOG,
    Dataset,
    Iid,
    catalog,
    fetch,
    find,
    load,
    read_cifar10,
    read_idx,
    read_mnist,
    read_npz,
)
from autofl.errors import AutoFLError
from autofl.experiments.data import load_federated


def idx_bytes(array):
    axes = b"".join(int(length).to_bytes(4, "big") for length in array.shape)
    return bytes([0, 0, 8, array.ndim]) + axes + array.astype(np.uint8).tobytes()


def write_mnist(folder, rng, num_train=6, num_test=4):
    folder.mkdir(parents=True)
    for part, num in (("train", num_train), ("t10k", num_test)):
        images = rng.integers(0, 256, (num, 28, 28))
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(images)))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(np.arange(num) % 10))


def test_a_file_without_samples_is_told_so(tmp_path):
    np.savez(tmp_path / "own.npz", x=np.zeros((0, 28), np.float32), y=np.zeros(0, np.int64))
    with pytest.raises(AutoFLError, match="data own: it holds no samples"):
        read_npz(tmp_path / "own.npz")


def test_idx_files_gzipped_or_plain_give_back_their_bytes(tmp_path, rng):
    array = rng.integers(0, 256, (5, 3, 2))
    for name, pack in (("plain", bytes), ("packed.gz", gzip.compress)):
        (tmp_path / name).write_bytes(pack(idx_bytes(array)))
        np.testing.assert_array_equal(read_idx(tmp_path / name), array)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\x08",
        b"\0\0\x0d\x01\0\0\0\x01\0",
        idx_bytes(np.zeros((4, 4)))[:-1],
        b"\x1f\x8bbroken",
    ],
)
def test_a_broken_idx_file_is_one_clear_line(tmp_path, content):
    (tmp_path / "broken").write_bytes(content)
    with pytest.raises(AutoFLError, match="fetch it again with 'autofl data fetch mnist'"):
        read_idx(tmp_path / "broken")
    write_mnist(tmp_path / "all", np.random.default_rng(1))
    (tmp_path / "all" / "t10k-labels-idx1-ubyte").write_bytes(content)
    with pytest.raises(AutoFLError, match="fetch it again with 'autofl data fetch fashion-mnist'"):
        read_mnist(tmp_path / "all", "fashion-mnist")


def test_mnist_is_found_in_a_named_folder_and_in_autofl_data(tmp_path, rng, monkeypatch):
    write_mnist(tmp_path / "mnist", rng)
    for place in (tmp_path, tmp_path / "mnist"):
        dataset = load("mnist", place)
        assert dataset.x.shape == (10, 784)
        assert dataset.y.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AUTOFL_DATA", str(tmp_path))
    assert find("mnist") == tmp_path / "mnist"
    monkeypatch.setenv("AUTOFL_DATA", str(tmp_path / "elsewhere"))
    assert find("mnist") is None
    write_mnist(tmp_path / "home" / "autofl" / "mnist", rng)
    assert find("mnist") == tmp_path / "home" / "autofl" / "mnist"
    assert find("cifar10") is None
    with pytest.raises(AutoFLError, match="autofl data fetch cifar10"):
        load("cifar10")


def test_cifar_rows_are_a_label_and_three_planes(tmp_path):
    for k, file in enumerate(CATALOG["cifar10"].files):
        row = np.concatenate([[k], np.full(1024, 1), np.full(1024, 2), np.full(1024, 3)]).astype(
            np.uint8
        )
        row.tofile(tmp_path / file)
    dataset = read_cifar10(tmp_path)
    assert dataset.x.shape == (6, 3, 32, 32)
    assert dataset.y.tolist() == [0, 1, 2, 3, 4, 5]
    assert [int(dataset.x[0, channel].mean()) for channel in range(3)] == [1, 2, 3]
    (tmp_path / "test_batch.bin").write_bytes(b"\0" * 3072)
    with pytest.raises(AutoFLError, match="whole number"):
        read_cifar10(tmp_path)


def test_mnist5k_holds_500_digits_of_each_class():
    dataset = load("mnist5k")
    assert dataset.x.shape == (5000, 784)
    assert dataset.x.dtype == np.uint8
    np.testing.assert_array_equal(np.bincount(dataset.y), np.full(10, 500))
    assert dataset.x.max() == 255


@pytest.mark.skipif(find("mnist") is None, reason="the real MNIST is not in AUTOFL_DATA")
def test_mnist_is_the_published_one():
    dataset = load("mnist")
    assert dataset.x.shape == (70_000, 784)
    # Mean 0.1307 and deviation 0.3081 of the 60,000 training images are the published constants.
    pixels = dataset.x[:60_000] / 255.0
    assert (round(float(pixels.mean()), 4), round(float(pixels.std()), 4)) == (0.1307, 0.3081)
    assert np.bincount(dataset.y[:60_000]).tolist() == [
        5923,
        6742,
        5958,
        6131,
        5842,
        5421,
        5918,
        6265,
        5851,
        5949,
    ]


@pytest.mark.skipif(find("cifar10") is None, reason="the real CIFAR-10 is not in AUTOFL_DATA")
def test_cifar10_is_the_published_one():
    dataset = load("cifar10")
    assert np.bincount(dataset.y).tolist() == [6000] * 10
    mean = dataset.x[:50_000].mean(axis=(0, 2, 3)) / 255.0
    np.testing.assert_allclose(mean, [0.4914, 0.4822, 0.4465], atol=5e-5)


def test_own_arrays_come_from_an_npz_and_nonsense_is_refused(tmp_path, rng):
    x, y = rng.normal(size=(6, 4)), np.array([0, 1, 2, 0, 1, 2])
    np.savez(tmp_path / "own.npz", x=x, y=y, ue=np.array([0, 0, 0, 1, 1, 1]))
    dataset, owner = read_npz(tmp_path / "own.npz")
    assert (dataset.num_classes, owner.tolist()) == (3, [0, 0, 0, 1, 1, 1])
    np.savez(tmp_path / "no_y.npz", x=x)
    np.savez(tmp_path / "nan.npz", x=np.full((6, 4), np.nan), y=y)
    np.savez(tmp_path / "float_y.npz", x=x, y=y / 2)
    np.savez(tmp_path / "short.npz", x=x[:3], y=y)
    np.savez(tmp_path / "objects.npz", x=np.array([{}] * 6, dtype=object), y=y)
    (tmp_path / "text.npz").write_text("no archive")
    for name in ("no_y", "nan", "float_y", "short", "objects", "text", "missing"):
        with pytest.raises(AutoFLError):
            read_npz(tmp_path / f"{name}.npz")


def test_owners_may_have_names_in_an_npz(tmp_path, rng):
    owner = np.array(["lea", "lea", "kim", "kim"])
    np.savez(tmp_path / "own.npz", x=rng.normal(size=(4, 2)), y=np.arange(4) % 2, ue=owner)
    assert read_npz(tmp_path / "own.npz")[1].tolist() == owner.tolist()


def test_real_labels_are_refused_in_one_line_that_says_what_to_do(tmp_path, rng):
    x, y = rng.normal(size=(6, 4)), rng.normal(size=6)
    np.savez(tmp_path / "own.npz", x=x, y=y)
    for make in (lambda: read_npz(tmp_path / "own.npz"), lambda: Dataset("own", x, y, 3)):
        with pytest.raises(
            AutoFLError,
            match=r"y holds float64 numbers; AutoFL only classifies so far: give the class",
        ):
            make()


@pytest.mark.parametrize("kind", [np.uint8, np.int32])
def test_token_ids_reach_the_model_as_they_are_and_bytes_are_pixels_unless_said_otherwise(
    tmp_path, rng, kind
):
    x, y = rng.integers(0, 200, (40, 5)).astype(kind), np.arange(40) % 2
    np.savez(tmp_path / "own.npz", x=x, y=y)
    own = [
        "data.name=npz",
        f"data.file='{tmp_path / 'own.npz'}'",
        "data.partition=iid",
        "cell.num_ue=2",
    ]
    everything = np.arange(40)
    ids, usual, pixels = (
        load_federated(load_settings(overrides=[*own, *more])).gather(everything)[0].numpy()
        for more in (["data.values=ids"], [], ["data.values=pixels"])
    )
    np.testing.assert_array_equal(ids, x)
    np.testing.assert_array_equal(usual, pixels if kind == np.uint8 else x)
    assert abs(pixels).max() < 4.0


def test_a_table_is_standardised_by_its_training_samples_and_images_are_not(rng):
    x = rng.normal(size=(400, 4)) * [1.0, 1000.0, 0.0, 0.0] + [0.0, 5.0, 2024.0, 0.5]
    y = np.arange(400) % 2
    data = Dataset("own", x.astype(np.float32), y, 2).federate(Iid(), 4, 1)
    ready = data.gather(data.partition.train)[0].double().numpy()
    np.testing.assert_allclose(ready[:, :2].mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(ready[:, :2].std(axis=0), 1.0, rtol=1e-5)
    # A column that is the same for all stays, as a bias of at most 1: 2024 would drown the others.
    np.testing.assert_allclose(ready[:, 2], 1.0, rtol=1e-6)
    np.testing.assert_array_equal(ready[:, 3], 0.5)
    raw = Dataset("own", x.astype(np.float32), y, 2).federate(Iid(), 4, 1, standardise=False)
    np.testing.assert_array_equal(raw.gather(np.arange(400))[0].numpy(), x.astype(np.float32))
    images = x.astype(np.float32).reshape(-1, 4, 1)
    data = Dataset("own", images, y, 2).federate(Iid(), 4, 1)
    np.testing.assert_array_equal(data.gather(np.arange(400))[0].numpy(), images)


def test_values_that_the_samples_cannot_be_are_refused(rng):
    for x, values, why in (
        (
            rng.normal(size=(4, 2)),
            "pixels",
            'values = "pixels" needs whole numbers from 0 to 255, but x holds float64',
        ),
        (np.full((4, 2), 256), "pixels", "from 256 to 256"),
        (rng.normal(size=(4, 2)), "ids", 'values = "ids" needs whole numbers, but'),
        (np.zeros((4, 2, 2)), "table", r"not \(2, 2\)"),
    ):
        with pytest.raises(AutoFLError, match=why):
            Dataset("own", x, np.arange(4) % 2, 2).taken_as(values)


def test_a_partition_that_is_none_is_refused_in_one_line(rng):
    dataset = Dataset("own", rng.normal(size=(4, 2)), np.arange(4) % 2, 2)
    for law in ("iid", Iid, None):
        with pytest.raises(AutoFLError, match=r"give an object such as fl.iid\(\)"):
            dataset.federate(law, 2, 1)


@pytest.fixture
def mirror(tmp_path, rng, monkeypatch):
    """A mirror of MNIST on this machine, and a catalogue that knows its checksums."""
    served = tmp_path / "served"
    write_mnist(served, rng)
    for plain in served.glob("*ubyte"):
        plain.with_suffix(".gz").write_bytes(gzip.compress(plain.read_bytes()))
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(served))
    handler.func.log_message = lambda *_: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    known = catalog.CATALOG["mnist"]
    sha256 = {
        name: hashlib.sha256((served / name).read_bytes()).hexdigest() for name in known.sha256
    }
    source = catalog.Source(
        known.title,
        known.folder,
        known.read,
        known.files,
        f"http://127.0.0.1:{server.server_port}/",
        sha256,
    )
    monkeypatch.setitem(catalog.CATALOG, "mnist", source)
    yield served
    server.shutdown()


def test_a_download_is_checked_and_read(mirror, tmp_path):
    place = fetch("mnist", tmp_path / "cache")
    assert len(load("mnist", tmp_path / "cache").y) == 10
    before = {path.name: path.stat().st_mtime_ns for path in place.iterdir()}
    fetch("mnist", tmp_path / "cache")
    assert {path.name: path.stat().st_mtime_ns for path in place.iterdir()} == before


def test_the_command_fetches_with_progress_and_answers_in_json(mirror, tmp_path, capsys):
    from autofl.cli.main import run

    assert run(["data", "fetch", "mnist", "--folder", str(tmp_path / "cache"), "--json"]) == 0
    assert '"samples": 10' in capsys.readouterr().out


def test_a_download_that_is_not_the_expected_file_is_refused(mirror, tmp_path):
    (mirror / "train-images-idx3-ubyte.gz").write_bytes(b"something else")
    with pytest.raises(AutoFLError, match="sha256 differs"):
        fetch("mnist", tmp_path / "cache")
    assert find("mnist", tmp_path / "cache") is None


def test_a_mirror_that_does_not_answer_is_one_clear_line(mirror, tmp_path):
    (mirror / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(AutoFLError, match="no download"):
        fetch("mnist", tmp_path / "cache")
