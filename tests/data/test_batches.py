"""Drawing: distinct, uniform, repeatable by a UE alone; and the pool that batches come from."""

import numpy as np
import pytest
import torch

from autofl.data import ByLabels
from autofl.data.batch import draw_meta, draw_positions, split_sizes
from autofl.data.federated import federate


def test_positions_are_distinct_and_within_the_ues_own_samples():
    size, num = np.array([5, 40, 200, 3]), np.array([5, 18, 50, 3])
    drawn = draw_positions(
        size, num, np.array([9, 2, 7, 1]), 3, seed=1, purpose="batch", round_index=4
    )
    assert drawn.shape == (4, 3, 50)
    for row, (most, n) in enumerate(zip(size, num, strict=True)):
        for step in range(3):
            mine = drawn[row, step, :n]
            assert len(set(mine.tolist())) == n
            assert mine.min() >= 0
            assert mine.max() < most
            assert not drawn[row, step, n:].any()


@pytest.mark.parametrize(
    "num", [1, 3, 4, 6], ids="{} of 6".format
)  # up to half by one method, more by the other
def test_every_sample_is_as_likely_in_every_slot(num):
    # 4,000 draws: each (slot, sample) has expectation 4000/6; a chi-square variable of about 5
    # degrees a slot.
    drawn = draw_positions(
        np.array([6]), np.array([num]), np.array([0]), 4000, seed=5, purpose="batch", round_index=0
    )[0]
    counts = np.stack([np.bincount(drawn[:, slot], minlength=6) for slot in range(num)])
    expected = len(drawn) / 6
    chi_square = ((counts - expected) ** 2 / expected).sum(axis=1)
    assert (chi_square < 25.7).all()  # the 0.01 % point for 5 degrees


def test_pairs_of_samples_are_as_likely_as_each_other():
    # 2 of 5: each of the 20 ordered pairs has expectation 200 in 4,000 draws.
    drawn = draw_positions(
        np.array([5]), np.array([2]), np.array([3]), 4000, seed=9, purpose="batch", round_index=1
    )[0]
    counts = np.bincount(drawn[:, 0] * 5 + drawn[:, 1], minlength=25).reshape(5, 5)
    assert not counts.diagonal().any()
    off = counts[~np.eye(5, dtype=bool)]
    assert ((off - 200) ** 2 / 200).sum() < 49.0  # the 0.02 % point for 19 degrees


def test_a_ue_draws_the_same_alone_as_among_others():
    size, num, ue = np.array([100, 80, 60, 30]), np.array([20, 9, 45, 30]), np.array([3, 11, 6, 8])
    together = draw_positions(size, num, ue, 2, seed=8, purpose="batch", round_index=3)
    for i in range(4):
        alone = draw_positions(
            size[[i]], num[[i]], ue[[i]], 2, seed=8, purpose="batch", round_index=3
        )
        np.testing.assert_array_equal(alone[0], together[i, :, : num[i]])


def test_thirds_add_up_and_the_hessian_batch_is_never_larger():
    num = np.arange(3, 200)
    inner, outer, hess = split_sizes(num)
    np.testing.assert_array_equal(inner + outer + hess, num)
    assert (hess >= 1).all()
    assert (outer >= inner).all()
    assert (inner >= hess).all()
    assert (outer - hess <= 1).all()


def test_thirds_give_what_is_left_to_the_outer_batch_and_then_to_the_inner_one():
    num = np.arange(0, 3000)
    outer = -(-num // 3)
    inner = -(-(num - outer) // 2)
    np.testing.assert_array_equal(split_sizes(num), [inner, outer, num - outer - inner])


@pytest.mark.parametrize(
    ("num", "split", "sizes"),
    [
        (3, (0.1, 0.8, 0.1), (1, 1, 1)),  # 0.3, 2.4, 0.3: 0, 3, 0, and two of the three move
        (
            5,
            (0.1, 0.8, 0.1),
            (1, 3, 1),
        ),  # 0.5, 4, 0.5: the inner batch gets the fifth, the Hessian's takes one
        (8, (0.1, 0.8, 0.1), (1, 6, 1)),  # 0.8, 6.4, 0.8
        (10, (0.1, 0.8, 0.1), (1, 8, 1)),
        (15, (0.1, 0.8, 0.1), (2, 12, 1)),  # 1.5, 12, 1.5
        (20, (0.1, 0.8, 0.1), (2, 16, 2)),
        (10, (0.25, 0.5, 0.25), (3, 5, 2)),
        (4, (0.98, 0.01, 0.01), (2, 1, 1)),  # the largest gives, whichever it is
        (7, (0.2, 0.3, 0.5), (1, 2, 4)),  # 1.4, 2.1, 3.5
    ],
)
def test_a_split_is_rounded_as_worked_by_hand(num, split, sizes):
    assert tuple(split_sizes(np.array(num), split)) == sizes


def test_every_split_adds_up_and_leaves_no_batch_empty(rng):
    num = np.arange(3, 300)
    for share in rng.dirichlet([0.3, 0.3, 0.3], size=200):
        size = split_sizes(num, tuple(np.maximum(share, 1e-6) / np.maximum(share, 1e-6).sum()))
        np.testing.assert_array_equal(size.sum(axis=0), num)
        assert size.min() >= 1


def test_a_split_draws_the_same_samples_and_shares_them_out_otherwise(federated):
    ue, num = np.array([0, 3, 5]), np.array([20, 8, 3])
    thirds = draw_meta(federated.partition, ue, num, 2, seed=1, round_index=9)
    split = draw_meta(federated.partition, ue, num, 2, seed=1, round_index=9, split=(0.1, 0.8, 0.1))
    np.testing.assert_array_equal(
        split.mask.sum(axis=-1)[:, :, 0], [[2, 1, 1], [16, 6, 1], [2, 1, 1]]
    )
    for row in range(3):
        same = [
            set(draw.sample[:, row, 1][draw.mask[:, row, 1]].tolist()) for draw in (thirds, split)
        ]
        assert same[0] == same[1]
        assert len(same[0]) == num[row]


def test_the_three_batches_are_disjoint_and_hold_exactly_d_samples(federated):
    ue, num = np.array([0, 3, 5]), np.array([20, 7, 13])
    draw = draw_meta(federated.partition, ue, num, 2, seed=1, round_index=9)
    for row, u in enumerate(ue):
        for step in range(2):
            mine = draw.sample[:, row, step][draw.mask[:, row, step]]
            assert len(mine) == len(set(mine.tolist())) == num[row]
            assert set(mine.tolist()) <= set(federated.partition.train_of(int(u)).tolist())


def test_independent_batches_overlap_as_often_as_chance_has_it(federated):
    """Each batch is a draw of its own: of distinct samples, and two hold a common sample as often
    as they should.
    """
    num, rounds, size = np.array([9, 15]), 600, federated.partition.train_size[[3, 5]]
    both = np.zeros(2)
    for k in range(rounds):
        draw = draw_meta(
            federated.partition, np.array([3, 5]), num, 1, seed=1, round_index=k, independent=True
        )
        for row, u in enumerate((3, 5)):
            inner, outer, hess = (
                set(draw.sample[role, row, 0][draw.mask[role, row, 0]].tolist())
                for role in range(3)
            )
            assert [len(inner), len(outer), len(hess)] == [num[row] // 3] * 3
            assert inner | outer | hess <= set(federated.partition.train_of(u).tolist())
            both[row] += (len(inner & outer) + len(inner & hess) + len(outer & hess)) / rounds
    expected = (
        3 * (num // 3) ** 2 / size
    )  # of D samples each lies in two batches of size b with (b/D)^2
    np.testing.assert_allclose(both, expected, rtol=0.2)
    alone = draw_meta(
        federated.partition, np.array([5]), num[1:], 1, seed=1, round_index=k, independent=True
    )
    np.testing.assert_array_equal(
        alone.sample[:, 0], draw.sample[:, 1]
    )  # a device can repeat its draw


def test_training_pixels_are_standardised_and_constant_ones_are_zero(few_digits, federated):
    data = federate(few_digits, federated.partition, torch.float64)
    x, _ = data.gather(data.partition.train)
    raw = few_digits.x[data.partition.train].astype(np.float64)
    moving = raw.std(axis=0) > 0.0
    np.testing.assert_allclose(x.mean(dim=0), 0.0, atol=1e-10)
    np.testing.assert_allclose(
        x.std(dim=0, correction=0)[moving],
        raw.std(axis=0)[moving] / (raw.std(axis=0)[moving] + 0.001),
    )
    everything, _ = data.gather(np.arange(len(few_digits.y)))
    assert not everything[:, ~moving].any()


def test_gathering_bytes_equals_standardising_first(few_digits, federated):
    x, y = federated.gather(np.array([[3, 1], [4, 1]]))
    train = few_digits.x[federated.partition.train].astype(np.float64)
    scale = np.where(train.std(axis=0) > 0, 1 / (train.std(axis=0) + 0.001), 0.0)
    expected = (few_digits.x.astype(np.float64) - train.mean(axis=0)) * scale
    # Deviations come from exact integers here and from floats above; a rare pixel's differ in the
    # 13th digit.
    np.testing.assert_allclose(x.numpy(), expected[[[3, 1], [4, 1]]], rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(y.numpy(), few_digits.y[[[3, 1], [4, 1]]])


def test_without_standardising_bytes_become_numbers_between_0_and_1(few_digits):
    data = few_digits.federate(ByLabels(5), 8, seed=3, standardise=False)
    x, _ = data.gather(np.arange(50))
    np.testing.assert_allclose(x.numpy(), few_digits.x[:50] / 255.0, rtol=1e-6)


def test_inputs_that_are_always_zero_are_left_out_and_nothing_else(few_digits, federated):
    columns, narrow = federated.columns, federated.narrow
    assert columns is not None
    everything = np.arange(len(federated.y))
    (wide, y), (x, same_y) = federated.gather(everything), narrow.gather(everything)
    assert x.shape[1] % 16 == 0
    assert x.shape[1] < 784
    assert torch.equal(x, wide[:, columns.kept])
    assert torch.equal(y, same_y)
    assert not x[:, -1].any()  # the one that stands for those left out
    assert torch.equal(x[:, columns.back], wide)
    assert narrow.partition is federated.partition


def test_images_own_numbers_and_data_without_zeros_keep_all_inputs(few_digits, federated):
    images = type(few_digits)("images", few_digits.x.reshape(-1, 1, 28, 28), few_digits.y, 10)
    numbers = type(few_digits)("numbers", few_digits.x.astype(np.float32), few_digits.y, 10)
    noise = np.random.default_rng(1).integers(0, 256, few_digits.x.shape).astype(np.uint8)
    busy = type(few_digits)("busy", noise, few_digits.y, 10)
    for data in (images, numbers, busy):
        whole = federate(data, federated.partition)
        assert whole.columns is None
        assert whole.narrow is whole
