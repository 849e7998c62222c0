"""Who owns what, checked by counting."""

import numpy as np
import pytest

from autofl.data import by_labels, by_owner, dirichlet, iid, label_counts, split
from autofl.errors import AutoFLError
from autofl.rng import stream

LABEL = np.repeat(np.arange(10), 600)


def everything_once(owned, total):
    np.testing.assert_array_equal(np.sort(np.concatenate(owned)), np.arange(total))


def test_iid_portions_are_equal_and_cover_everything(rng):
    owned = iid(LABEL, 20, rng)
    everything_once(owned, len(LABEL))
    assert {len(index) for index in owned} == {300}


@pytest.mark.parametrize("labels", [1, 2, 5, 10])
def test_a_ue_owns_its_own_l_labels_and_no_other(rng, labels):
    owned = by_labels(LABEL, 20, rng, labels, 10)
    everything_once(owned, len(LABEL))
    for u, index in enumerate(owned):
        assert set(LABEL[index]) <= {(u + j) % 10 for j in range(labels)}
        assert len(set(LABEL[index])) >= max(1, labels // 2)  # the last of many pieces may be empty by rounding


def test_pieces_lie_between_the_bounds_of_the_recipe(rng):
    # With one label a UE the two owners of a class get its two pieces: one in [total/3, total/2), one the rest.
    for _ in range(50):
        owned = by_labels(LABEL, 20, rng, 1, 10)
        for u in range(10):
            small, large = sorted((len(owned[u]), len(owned[u + 10])))
            assert 200 <= small < 300
            assert small + large == 600


def test_sizes_are_uneven_and_do_not_follow_the_numbers(rng):
    sizes = np.array([[len(index) for index in by_labels(LABEL, 20, rng, 5, 10)] for _ in range(100)])
    assert sizes.max() > 3 * np.median(sizes)
    assert abs(np.corrcoef(sizes.mean(axis=0), np.arange(20))[0, 1]) < 0.5


def test_a_small_concentration_is_more_heterogeneous(rng):
    def largest_share(concentration):
        owned = dirichlet(LABEL, 10, rng, concentration, 10)
        everything_once(owned, len(LABEL))
        counts = np.array([np.bincount(LABEL[index], minlength=10) for index in owned])
        return (counts.max(axis=1) / counts.sum(axis=1)).mean()

    assert largest_share(0.3) > 2 * largest_share(100.0)
    assert largest_share(1e5) == pytest.approx(0.1, abs=0.02)


def test_an_own_partition_is_taken_as_it_is():
    owned = by_owner(np.array([2, 0, 1, 0, 2, 1]))
    assert [index.tolist() for index in owned] == [[1, 3], [2, 5], [0, 4]]


def test_each_ue_trains_on_75_percent_of_its_own_samples(rng):
    owned = by_labels(LABEL, 20, rng, 5, 10)
    partition = split(owned, rng)
    for u, index in enumerate(owned):
        train, test = partition.train_of(u), partition.test_of(u)
        assert len(train) == len(index) * 3 // 4
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.sort(index))
    assert label_counts(partition, LABEL, 10).sum() == len(LABEL)


def test_the_same_stream_gives_the_same_partition():
    one, two = (by_labels(LABEL, 20, stream(4, "partition"), 5, 10) for _ in range(2))
    for left, right in zip(one, two, strict=True):
        np.testing.assert_array_equal(left, right)


def test_ues_without_samples_are_refused_with_advice(rng):
    with pytest.raises(AutoFLError, match="fewer UEs"):
        by_labels(LABEL, 1000, rng, 1, 10)
    with pytest.raises(AutoFLError, match="labels"):
        by_labels(LABEL, 20, rng, 11, 10)
