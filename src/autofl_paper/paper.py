"""What the paper says about its figures: the one place that knows its numbers. Section numbers as
printed.
"""

from dataclasses import dataclass

SAMPLE_SIZES = (5, 10, 20, 30, 40, 60)
"""d of Per-FedAvg in Fig. 3. The text names 5, 40 and 60; the sizes between are ours."""
BEST_SIZE = 40
WORST_SIZE = 60
"""Per-FedAvg improves up to the first and deteriorates at the second (Sec. V-B)."""
RADIUS = 200
LABELS = 5
"""R [m] and l unless otherwise said (Sec. V-A)."""
TIME_RATIO = 2.0
"""Per-FedAvg takes at least this many times AutoFL's time when the algorithms start to converge
(Sec. V-B).
"""
ROUNDS_TO_CONVERGE = {"AutoFL": 50, "Per-FedAvg": 70, "FedAvg-1": 100, "FedAvg-2": 100}
"""K* on non-i.i.d. MNIST: after this many rounds they "start to converge" (Sec. V-C)."""
GRADIENT_ROUNDS = {0.5: (46, 217), 0.2: (142, 541)}
"""By epsilon: rounds until the mean of ||grad F||^2 over them, which Theorem 1 bounds, is that
small, and K* of (30). One run of AutoFL (docs/theory-results.md), not the paper's: its figures
show no gradient.
"""


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper: which runs it shows and how, its caption, and what the text says of
    it.
    """

    study: str
    kind: str  # learning_time, loss, accuracy, rounds_to_converge or best_accuracy
    title: str
    says: str


_TIME = "AutoFL needs the least time at equal accuracy; Per-FedAvg takes at least twice as long when they start to converge"
_SIZES = "time falls from d = 5 to d = 40 and grows at d = 60; AutoFL is faster than all"
_LOSS = "AutoFL has the smallest loss"
_ACCURACY = "AutoFL has the highest accuracy and converges first"

FIGURES = {
    "fig2a": PaperFigure("mnist-iid", "learning_time", "Learning time, i.i.d. MNIST", _TIME),
    "fig2b": PaperFigure("mnist", "learning_time", "Learning time, non-i.i.d. MNIST", _TIME),
    "fig2c": PaperFigure(
        "cifar10",
        "learning_time",
        "Learning time, non-i.i.d. CIFAR-10",
        f"{_TIME}; MAML leads most",
    ),
    "fig3a": PaperFigure(
        "samples-mnist", "learning_time", "Learning time by sample size, non-i.i.d. MNIST", _SIZES
    ),
    "fig3b": PaperFigure(
        "samples-cifar10",
        "learning_time",
        "Learning time by sample size, non-i.i.d. CIFAR-10",
        _SIZES,
    ),
    "fig4a": PaperFigure("mnist-iid", "loss", "Training loss, i.i.d. MNIST", _LOSS),
    "fig4b": PaperFigure("mnist", "loss", "Training loss, non-i.i.d. MNIST", _LOSS),
    "fig4c": PaperFigure("cifar10", "loss", "Training loss, non-i.i.d. CIFAR-10", _LOSS),
    "fig4d": PaperFigure("mnist-iid", "accuracy", "Test accuracy, i.i.d. MNIST", _ACCURACY),
    "fig4e": PaperFigure(
        "mnist",
        "accuracy",
        "Test accuracy, non-i.i.d. MNIST",
        "start to converge after about 50 (AutoFL), 70 (Per-FedAvg), 100 (FedAvg) rounds",
    ),
    "fig4f": PaperFigure(
        "cifar10",
        "accuracy",
        "Test accuracy, non-i.i.d. CIFAR-10",
        f"{_ACCURACY}, most of all here",
    ),
    "fig5a": PaperFigure(
        "radius", "rounds_to_converge", "K* against the radius", "K* grows ever faster with R"
    ),
    "fig5b": PaperFigure(
        "radius", "best_accuracy", "Best accuracy against the radius", "falls ever faster with R"
    ),
    "fig5c": PaperFigure(
        "labels", "rounds_to_converge", "K* against the labels of a UE", "K* falls with l"
    ),
    "fig5d": PaperFigure(
        "labels",
        "best_accuracy",
        "Best accuracy against the labels of a UE",
        "grows with l; AutoFL gains most at small l",
    ),
}
"""Fig. 4 has the losses in its first row (a to c) and the accuracies in its second (d to f)."""
