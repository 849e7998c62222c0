"""Top-k with error feedback: by hand, its bits."""

import torch

from autofl.compressors.top_k import TopK


def test_by_hand_what_is_left_out_comes_with_the_next_update():
    compressor = TopK(share=0.25)
    own = compressor.init(4)
    change = torch.tensor([3.0, -2.0, 1.0, 0.5])
    bits = compressor.update_bits(4) / 4
    seen = []
    for _ in range(4):
        sent, own = compressor(change, bits, None, own)
        seen.append(sent.received.tolist())
    # Left over after each round: (0,-2,1,.5), then -2-2 = -4 beats 3, then 3+3 = 6, then -2-2 = -4
    # again.
    assert seen == [[3, 0, 0, 0], [0, -4, 0, 0], [6, 0, 0, 0], [0, -4, 0, 0]]
    assert own["lost"].tolist() == [3.0, 0.0, 4.0, 2.0]


def test_bits_are_those_of_values_and_places():
    assert TopK(0.01).update_bits(10_000) == 100 * (32 + 14)
    assert TopK(0.01).num_sent(10_000, bits_per_weight=1.0) == 217  # 10,000 / 46
    assert TopK(0.5).update_bits(1) == 40  # 33 in whole bytes


def test_all_of_it_is_no_loss():
    change = torch.randn(50)
    sent, own = TopK(1.0)(change, 40.0, None, TopK(1.0).init(50))
    assert torch.equal(sent.received, change)
    assert not own["lost"].any()
