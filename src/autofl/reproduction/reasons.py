"""Why a claim does not hold, or only partly: our reading of the runs. The verdicts follow from numbers alone."""

_TIE = "a tie with FedAvg-2: the same plan, and one step with alpha = 0.03 changes the gradient little"
_THIRDS = "five samples leave one or two for each of the three batches: a noisy meta-gradient"
_DIVERGES = "the exact meta-gradient diverges at alpha = 0.06, with d = 5 before it reaches the target"
_SPENT = "MAML spends its samples on three batches, FedAvg-2 all of them on one gradient"
_WINDOW = "K* asks for 20 quiet rounds; slow learners are quiet early"
_FEW_LABELS = "adapting to few labels is easier than to ten; the global model shows what the paper says"

WHY_NOT = {
    "least-time": _TIE,
    "twice": "its rounds are the shortest there can be (d = 5 at P_max), so only the number of rounds counts",
    "maml-planned": _TIE,
    "maml-fixed-cifar10": _DIVERGES,
    "maml-fixed": _THIRDS,
    "maml-more-on-cifar10": _DIVERGES,
    "plan-maml": _THIRDS,
    "plan-fedavg": "FedAvg with d = 5 already has a useful gradient: seeds differ by more than planning gains",
    "iid-faster": _FEW_LABELS,
    "iid-steadier": "adaptation hides part of the unrest of the global model",
    "no-size-faster": "d = 20 to 40 takes as many rounds as AutoFL's d, and no longer ones",
    "size-each": "beyond d = 20 rounds hardly fall, while each takes longer",
    "size": "seeds differ by more than the effect, and some diverge",
    "best-accuracy-cifar10": "the exact meta-gradient diverges at alpha = 0.06 while FedAvg goes on rising",
    "least-loss-cifar10": "the exact meta-gradient diverges at alpha = 0.06 while FedAvg goes on falling",
    "best-accuracy": _SPENT,
    "least-loss": _SPENT,
    "rounds": _WINDOW,
    "radius": "up to 500 m every update is decoded with the fading as printed; seeds differ by more than the effect",
    "labels-gain": "globally, few labels hurt AutoFL as they hurt the others",
    "labels": _FEW_LABELS,
}
"""By the beginning of a claim's name; the first that fits counts."""


def why_not(name: str) -> str:
    """The reason for a claim that does not hold."""
    return next(reason for prefix, reason in WHY_NOT.items() if name.startswith(prefix))
