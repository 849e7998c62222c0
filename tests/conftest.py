"""Shared small problems: real digits, few of them, and the real data sets where AUTOFL_DATA has
them.
"""

import os
import re
from pathlib import Path

# The tests run small products by the thousand; a second thread only waits for the first.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import torch

from autofl.data import ByLabels, Dataset, find, load
from autofl.data.federated import FederatedData, federate

WHOLE_FILE_IS_SLOW = re.compile(r"^pytestmark = .*pytest\.mark\.slow", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make quick` does not even import a file whose tests are all slow."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    return bool(WHOLE_FILE_IS_SLOW.search(collection_path.read_text(encoding="utf-8"))) or None


@pytest.fixture(scope="session")
def digits() -> Dataset:
    """The real MNIST where it is here, MNIST-5k elsewhere: the same code either way."""
    return load("mnist") if find("mnist") is not None else load("mnist5k")


@pytest.fixture(scope="session")
def few_digits() -> Dataset:
    """1,000 of the 5,000 digits, 100 a class."""
    whole = load("mnist5k")
    return Dataset(whole.name, whole.x[::5], whole.y[::5], whole.num_classes)


@pytest.fixture(scope="session")
def federated(few_digits: Dataset) -> FederatedData:
    """Eight UEs of five labels each, float64."""
    return federate(few_digits, few_digits.partition(ByLabels(5), 8, seed=3), torch.float64)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(12345)
