"""Who owns what, checked by counting."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from autofl.data import ByLabels, ByOwner, Dirichlet, Iid, label_counts, load, split
from autofl.errors import AutoFLError
from autofl.rng import stream

LABEL = np.repeat(np.arange(10), 600)


@pytest.fixture(scope="module")
def mnist5k():
    return load("mnist5k")


def everything_once(owned, total):
    np.testing.assert_array_equal(np.sort(np.concatenate(owned)), np.arange(total))


def test_iid_portions_are_equal_and_cover_everything(rng):
    owned = Iid()(LABEL, 10, 20, rng)
    everything_once(owned, len(LABEL))
    assert {len(index) for index in owned} == {300}


@pytest.mark.parametrize("labels", [1, 2, 5, 10])
def test_a_ue_owns_its_own_l_labels_and_no_other(rng, labels):
    owned = ByLabels(labels)(LABEL, 10, 20, rng)
    everything_once(owned, len(LABEL))
    for u, index in enumerate(owned):
        assert set(LABEL[index]) <= {(u + j) % 10 for j in range(labels)}
        assert len(set(LABEL[index])) >= max(
            1, labels // 2
        )  # the last of many pieces may be empty by rounding


def test_pieces_lie_between_the_bounds_of_the_recipe(rng):
    # With one label a UE the two owners of a class get its two pieces: one in [total/3, total/2),
    # one the rest.
    for _ in range(50):
        owned = ByLabels(1)(LABEL, 10, 20, rng)
        for u in range(10):
            small, large = sorted((len(owned[u]), len(owned[u + 10])))
            assert 200 <= small < 300
            assert small + large == 600


def test_sizes_are_uneven_and_do_not_follow_the_numbers(rng):
    sizes = np.array(
        [[len(index) for index in ByLabels(5)(LABEL, 10, 20, rng)] for _ in range(100)]
    )
    assert sizes.max() > 3 * np.median(sizes)
    assert abs(np.corrcoef(sizes.mean(axis=0), np.arange(20))[0, 1]) < 0.5


def test_a_small_concentration_is_more_heterogeneous(rng):
    def largest_share(concentration):
        owned = Dirichlet(concentration)(LABEL, 10, 10, rng)
        everything_once(owned, len(LABEL))
        counts = np.array([np.bincount(LABEL[index], minlength=10) for index in owned])
        return (counts.max(axis=1) / counts.sum(axis=1)).mean()

    assert largest_share(0.3) > 2 * largest_share(100.0)
    assert largest_share(1e5) == pytest.approx(0.1, abs=0.02)


def test_an_own_partition_is_taken_as_it_is(rng):
    owned = ByOwner(np.array([2, 0, 1, 0, 2, 1]))(np.zeros(6), 1, 3, rng)
    assert [index.tolist() for index in owned] == [[1, 3], [2, 5], [0, 4]]


def test_each_ue_trains_on_75_percent_of_its_own_samples(rng):
    owned = ByLabels(5)(LABEL, 10, 20, rng)
    partition = split(owned, rng)
    for u, index in enumerate(owned):
        train, test = partition.train_of(u), partition.test_of(u)
        assert len(train) == len(index) * 3 // 4
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.sort(index))
    assert label_counts(partition, LABEL, 10).sum() == len(LABEL)


def test_the_same_stream_gives_the_same_partition():
    one, two = (ByLabels(5)(LABEL, 10, 20, stream(4, "partition")) for _ in range(2))
    for left, right in zip(one, two, strict=True):
        np.testing.assert_array_equal(left, right)


def test_ues_without_samples_are_refused_with_advice(rng):
    with pytest.raises(AutoFLError, match="fewer UEs"):
        ByLabels(1)(
            LABEL, 10, 4000, rng
        )  # 6,000 samples: UEs of one class would share 600 among 400


@pytest.mark.parametrize("labels", [1, 2, 5, 10])
@pytest.mark.parametrize("num_ue", [50, 100])
def test_many_ues_share_few_digits_unevenly_and_none_goes_without(mnist5k, num_ue, labels):
    sizes = []
    for seed in range(10):
        owned = ByLabels(labels)(mnist5k.y, 10, num_ue, stream(seed, "partition"))
        everything_once(owned, len(mnist5k.y))
        for u, index in enumerate(owned):
            assert set(mnist5k.y[index]) <= {(u + j) % 10 for j in range(labels)}
        sizes.append([len(index) for index in owned])
    assert np.min(sizes) >= 2
    assert (
        np.max(sizes, axis=1) > 1.5 * np.mean(sizes, axis=1)
    ).all()  # equal shares are not what the law is for
    assert (np.max(sizes, axis=1) > 4 * np.min(sizes, axis=1)).all()


@pytest.mark.parametrize("name", [str, lambda ue: 100 + 10 * ue, lambda ue: f"phone {ue:02}"])
def test_owners_are_counted_and_not_measured_by_their_largest_number(name):
    ue = np.arange(200) % 20
    owned = ByOwner(np.array([name(one) for one in ue]))(ue % 2, 2, 20, stream(1, "test"))
    assert sorted(len(index) for index in owned) == [10] * 20
    assert all(len(set(ue[index])) == 1 for index in owned)


def test_where_the_recipe_starves_a_ue_all_owners_of_a_class_get_half_an_equal_share(mnist5k):
    # One label each: the 500 samples of class c belong to UEs c, c + 10, ..., c + 90, and an equal
    # share is 50. The
    # recipe alone, without a second draw, served 12 of these 20 seeds.
    least = []
    for seed in range(20):
        sizes = np.array(
            [len(index) for index in ByLabels(1)(mnist5k.y, 10, 100, stream(seed, "partition"))]
        )
        assert (sizes.reshape(10, 10).sum(axis=0) == 500).all()
        least.append(int(sizes.min()))
    assert least.count(25) == 8
    assert sum(size < 25 for size in least) == 12


@pytest.mark.parametrize(("labels", "num_ue"), [(1, 2500), (2, 2500), (5, 1000), (10, 500)])
def test_the_most_ues_that_can_own_two_samples_do(mnist5k, labels, num_ue):
    # One label: 250 owners share 500 samples. More labels: every owner of a label needs one sample
    # of it.
    sizes = [
        len(index) for index in ByLabels(labels)(mnist5k.y, 10, num_ue, stream(1, "partition"))
    ]
    assert min(sizes) == max(2, labels)
    with pytest.raises(AutoFLError, match="fewer UEs") as refused:
        ByLabels(labels)(mnist5k.y, 10, 2510, stream(1, "partition"))  # 5,000 samples
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("law", "words"),
    [
        (lambda: ByLabels(11), "labels: 11 is too many; the data has 10 classes"),
        (lambda: ByOwner(LABEL / 2), "owner: float64"),
        (lambda: ByOwner(LABEL - 1), "whole number >= 0"),
        (lambda: ByOwner(LABEL[:-1]), "owner: 5999 values for 6000 samples"),
        (lambda: ByOwner(LABEL), "belong to 10 UEs, the cell has 20; set cell.num_ue"),
    ],
)
def test_a_law_that_makes_no_sense_is_refused_in_one_line(rng, law, words):
    with pytest.raises(AutoFLError) as refused:
        law()(LABEL, 10, 20, rng)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def fingerprint(owned):
    """Hash of who owns what, in which order."""
    digest = hashlib.sha256()
    for index in owned:
        digest.update(np.int64(len(index)).tobytes())
        digest.update(index.astype("<i8").tobytes())
    return digest.hexdigest()[:16]


@pytest.mark.parametrize(
    ("law", "seed", "expected"),
    [
        (Iid(), 1, "25bd52d091cf4c74"),
        (Iid(), 2, "412c44a4983f5732"),
        (Dirichlet(0.5), 1, "94c30b0c1a38868a"),
        (Dirichlet(0.5), 2, "a708db257dc2c49a"),
        (Dirichlet(5.0), 1, "bbb0e99bd30468cb"),
        (Dirichlet(5.0), 2, "8d9bdce3daf256b2"),
        (ByLabels(1), 1, "2e81ef070b21054c"),
        (ByLabels(1), 2, "9484485142aca96a"),
        (ByLabels(1), 3, "5cf9fbec52aeafe5"),
        (ByLabels(2), 1, "729a3288ba72f995"),
        (ByLabels(2), 2, "4e9b11c9ed73880d"),
        (ByLabels(2), 3, "ac860014e356801a"),
        (ByLabels(5), 1, "c1a226f9a477780e"),
        (ByLabels(5), 2, "1b21ce0641513064"),
        (ByLabels(5), 3, "840ed81e70898918"),
        (ByLabels(10), 1, "3b0b0bec0d0ddc85"),
        (ByLabels(10), 2, "aaba09a2206f8d88"),
        (ByLabels(10), 3, "7c413b4e3e9c34b8"),
    ],
)
def test_partitions_of_20_ues_stay_as_they_are_to_the_bit(mnist5k, law, seed, expected):
    assert fingerprint(law(mnist5k.y, 10, 20, stream(seed, "partition"))) == expected


def test_a_data_set_is_partitioned_and_federated_by_one_seed(few_digits):
    owned = ByLabels(3)(few_digits.y, 10, 6, stream(7, "partition"))
    by_hand = split(owned, stream(7, "split"))
    data = few_digits.federate(ByLabels(3), 6, seed=7, standardise=False)
    for name in ("train", "train_start", "test", "test_start"):
        np.testing.assert_array_equal(getattr(data.partition, name), getattr(by_hand, name))
    assert not np.array_equal(few_digits.partition(ByLabels(3), 6, seed=8).train, by_hand.train)
    with pytest.raises(AutoFLError, match="num_ue: 0"):
        few_digits.partition(Iid(), 0, seed=7)


def test_drawing_a_partition_loads_no_torch():
    code = (
        "import sys, numpy as np; from autofl.data import Dataset, Iid;"
        "Dataset('own', np.zeros((8, 1), np.float32), np.arange(8) % 2, 2).partition(Iid(), 2, 1);"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
