"""A part of each kind as a user would write it, named in the contract tests as module:object."""

import struct
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from torch import nn

from autofl.algorithms import FedAvg, State
from autofl.channels import Channel
from autofl.compressors import Sent
from autofl.data import Dataset
from autofl.engines import moved
from autofl.errors import AutoFLError
from autofl.network import Law, decoded, make_plan, round_cost
from autofl.planner import MIN_SAMPLES, Memoryless
from autofl.rng import stream
from autofl.selection import Selection


@dataclass(frozen=True)
class MomentumState(State):
    velocity: dict[str, torch.Tensor]


@dataclass(frozen=True)
class ServerMomentum(FedAvg):
    """FedAvg whose server remembers its last move."""

    momentum: Annotated[float, "of the server"] = 0.5

    def init(self, params):
        return MomentumState(params, {name: torch.zeros_like(p) for name, p in params.items()})

    def server_update(self, state, average):
        velocity = {
            name: self.momentum * v + average[name] - state.params[name]
            for name, v in state.velocity.items()
        }
        params = {name: p + velocity[name] for name, p in state.params.items()}
        return replace(state, params=params, velocity=velocity)


@dataclass(frozen=True)
class Greedy(Memoryless):
    """Full power, two local steps, and as many of so many samples as the energy pays for."""

    wanted: Annotated[int, "samples"] = 20

    def __call__(self, cell, channel_gain, memory):
        feasible = decoded(cell, channel_gain, cell.max_power) & (cell.data_size >= MIN_SAMPLES)
        samples = np.broadcast_to(np.minimum(self.wanted, np.floor(cell.data_size)), feasible.shape)
        plan = make_plan(
            cell,
            num_samples=samples,
            tx_power=cell.max_power,
            feasible=feasible,
            local_steps=np.array(2),
        )
        fits = round_cost(cell, channel_gain, plan).energy <= cell.max_energy
        return make_plan(
            cell,
            num_samples=samples,
            tx_power=cell.max_power,
            feasible=feasible & fits,
            local_steps=np.array(2),
            weight=np.maximum(samples, 1),
        ), memory


@dataclass(frozen=True)
class Watchful:
    """Samples that grow with the accuracy it is told of."""

    def init(self, cell):
        return {"accuracy": np.zeros(1)}

    def observe(self, memory, evaluation):
        return {"accuracy": np.full(1, evaluation.adapted_accuracy)}

    def __call__(self, cell, channel_gain, memory):
        wanted = 5 + round(40 * float(memory["accuracy"][0]))
        return Greedy(wanted)(cell, channel_gain, {})[0], memory


@dataclass(frozen=True)
class Waves(Channel):
    """A gain that swings with the round, another phase for each UE; the planner knows it a round
    late.
    """

    period: Annotated[float, "rounds"] = 7.0

    def gain(self, cell, seed, k):
        phase = stream(seed, "phase").uniform(0.0, 2.0 * np.pi, cell.num_ue)
        return cell.distance**-3.0 * (1.5 + np.sin(2.0 * np.pi * k / self.period + phase))

    def estimate(self, cell, seed, k, gain):
        return self.gain(cell, seed, k - 1)


@dataclass(frozen=True)
class TwoRates:
    """A radio that knows two rates."""

    slow_db: Annotated[float, "SNR of the slow one [dB]"] = 0.0

    def law(self):
        return Law(levels=((0.5, 10.0 ** (self.slow_db / 10.0)), (3.0, 100.0)))


@dataclass(frozen=True)
class Nearest(Selection):
    """UEs with a strong channel are twice as likely as the others."""

    num_selected: int = 3

    def probability(self, candidates):
        strong = candidates.gain >= np.median(candidates.gain)
        weight = np.where(strong, 2.0, 1.0)
        return np.minimum(self.num_selected * weight / weight.sum(), 1.0)


@dataclass(frozen=True)
class Signs:
    """The sign of each weight times their mean size; what is lost is added to the next update."""

    def update_bits(self, num_weights, bits_per_weight=None):
        return 32.0 + 8.0 * -(-num_weights // 8)

    def init(self, num_weights):
        return {"lost": torch.zeros(num_weights)}

    def __call__(self, change, bits_per_weight, randomness, own):
        whole = change + own["lost"].to(change)
        size, positive = whole.abs().mean().float(), (whole >= 0).numpy()
        received = self._received(size, positive).to(change)

        def pack():
            return struct.pack("<f", size) + np.packbits(positive).tobytes()

        return Sent(received, self.update_bits(len(change)), pack), {"lost": whole - received}

    def unpack(self, payload, num_weights):
        if 8 * len(payload) != self.update_bits(num_weights):
            raise AutoFLError(
                f"packed update: {len(payload)} bytes do not hold {num_weights} signs"
            )
        positive = np.unpackbits(np.frombuffer(payload, np.uint8, offset=4))[:num_weights] == 1
        return self._received(torch.tensor(struct.unpack("<f", payload[:4])[0]), positive)

    def _received(self, size, positive):
        return torch.where(torch.from_numpy(positive), size, -size)


@dataclass(frozen=True)
class Median:
    """The median of each weight over the updates."""

    def __call__(self, sent, arrived):
        return moved(sent, arrived.updates.table().median(dim=0).values)


def tiny(sample_shape, num_classes, width=8):
    inputs = int(np.prod(sample_shape))
    return nn.Sequential(
        nn.Flatten(-len(sample_shape)),
        nn.Linear(inputs, width),
        nn.Tanh(),
        nn.Linear(width, num_classes),
    )


def stripes(noise: float = 1.0):
    """600 samples of 12 numbers, the class being where the largest lies."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 4, 600)
    x = noise * rng.normal(size=(600, 12)).astype(np.float32)
    x[np.arange(600), 3 * y] += 3.0
    return Dataset("stripes", x, y, 4)


@dataclass(frozen=True)
class Halves:
    """The first half of the UEs own most of everything."""

    times: float = 3.0

    def __call__(self, label, num_classes, num_ue, rng):
        order = rng.permutation(len(label))
        weight = np.where(np.arange(num_ue) < num_ue / 2, self.times, 1.0)
        return np.split(
            order, np.round(np.cumsum(weight / weight.sum())[:-1] * len(label)).astype(int)
        )


@dataclass(frozen=True)
class Twice:
    """An attack: twice what is right."""

    def __call__(self, attacked, rng):
        return 2.0 * attacked.own
