"""The fast exact engine: no UE's weights are ever formed, except for the few of a narrow layer or a
convolution.

A linear layer's gradient on a batch is delta^T x, of rank at most the batch's size. So a UE's
weights are the shared ones plus a few outer products, and everything a meta-gradient needs is a
product of tall matrices with the shared weights (one for all UEs) plus small products with Gram
matrices (one per UE):

- forward under weights W + L^T R:  x W^T + (x R^T) L;
- backward:                         delta W + (delta L^T) R;
- the tangent along a gradient v = delta_o^T a_o:  (x a_o^T) delta_o, then the usual
  forward-over-reverse rules;
- the average over UEs of v - alpha H v: a sum of large products (delta)^T (input), UEs side by
  side.

Exact Per-FedAvg costs 3 forward and 2 weight-gradient products, plain SGD on the same samples 3 and
3. Where a batch has more rows than 2 in * out / (in + out), as for the last layer of a classifier,
it is cheaper to form L^T R and take the product with it than with both factors. So is each UE's
change of a convolution, whose gradient is of high rank; `images` turns it into matrix products. The
`loop` engine is the slow, obvious reference.
"""

from autofl.engines.low_rank.adapted import adapted_outputs, input_gram, outputs_by_rate
from autofl.engines.low_rank.layers import Linear
from autofl.engines.low_rank.recognise import Layer, low_rank_layers, low_rank_serves
from autofl.engines.low_rank.updates import LowRankUpdates, mean_of_runs, narrow_params

__all__ = [
    "Layer",
    "Linear",
    "LowRankUpdates",
    "adapted_outputs",
    "input_gram",
    "low_rank_layers",
    "low_rank_serves",
    "mean_of_runs",
    "narrow_params",
    "outputs_by_rate",
]
