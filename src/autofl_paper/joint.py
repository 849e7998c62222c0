"""The studies of the joint planner: arms as one would give them to `autofl simulate --set`.

Arms are judged on seeds 1, 2, ...; constants were tuned on seeds 101, 102, ..., and pilots made on
yet others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autofl.config import MODEL_WEIGHTS
from autofl.errors import AutoFLError
from autofl.jobs.tuned import Constants
from autofl_paper.joint_results import LEVELS, read_joint
from autofl_paper.recipes import ALGORITHMS
from autofl_paper.results import Reader
from autofl_paper.study import Arm, Studies, digits_here

if TYPE_CHECKING:
    from autofl_paper.page import Page

BEYOND = 0.005
"""A run goes on until its accuracy, smoothed, is this far beyond the second target."""
TUNING_SEED = 101
"""The first of the seeds on which constants are tuned."""
THRIFT = 0.5
"""planner.thrift of the arm that saves energy."""


@dataclass(frozen=True)
class JointScale:
    """How much of everything."""

    name: str
    seeds: int  # of the comparisons
    few_seeds: int  # of ablation, guesses, CIFAR-10 and what the paper leaves out
    rounds: int  # at most
    cifar_rounds: int
    cifar_every: int  # rounds between evaluations; on MNIST every round is evaluated
    test_samples: int  # of each UE
    targets: tuple[float, float]
    cifar_targets: tuple[float, float]
    every_arm: bool = True
    grid: int = 2  # seeds of the grid that (P1) is compared with; --seeds leaves it, it is large


SCALES = {
    "smoke": JointScale("smoke", 2, 2, 6, 4, 2, 20, (0.3, 0.4), (0.12, 0.15), every_arm=False),
    "quick": JointScale(
        "quick", 2, 2, 200, 400, 5, 100, (0.85, 0.90), (0.45, 0.50), every_arm=False
    ),
    "full": JointScale("full", 10, 5, 400, 1000, 2, 200, (0.85, 0.90), (0.45, 0.50)),
}
"""smoke shows that everything works, its numbers mean nothing; quick leaves arms out."""

CELLS: dict[str, tuple[str, ...]] = {
    "paper": (),
    "physical": ("preset=physical",),
    "tight": ("preset=physical", "cell.max_energy=3e-4"),
    "mixed": (
        "preset=physical",
        "cell.distance={disc=400}",
        "cell.cpu_frequency={log-uniform=[2e8, 2e9]}",
        "cell.max_energy={log-uniform=[1e-3, 1e-2]}",
    ),
    "far": ("preset=physical", "cell.distance={disc=500}"),
    "10 ms": ("preset=physical", "cell.overhead=0.01"),
    "100 ms": ("preset=physical", "cell.overhead=0.1"),
    "downlink": ("preset=physical", "cell.downlink_power=20.0"),
}
"""The cells by name; what is not set is Table I's: 20 UEs within 200 m, E_max = 3 mJ."""
DOWNLINKS: dict[str, tuple[str, ...]] = {
    "as it is": ("downlink.name=none",),
    "4 bit": ("downlink.name=quantise", "downlink.bits=4"),
    "2 bit, coded": ("downlink.name=entropy", "downlink.bits=2.0"),
}
"""What is sent down, where that takes time."""

TUNED: dict[tuple[str, str], Constants] = {
    ("paper", "autofl-j"): Constants(num_samples=8, local_steps=2, bits=0.2, frequency=1.0),
    ("paper", "fedavg-j"): Constants(num_samples=8, local_steps=2, bits=0.2, frequency=1.0),
    ("physical", "autofl-j"): Constants(num_samples=12, local_steps=3, bits=0.2, frequency=1.0),
    ("tight", "autofl-j"): Constants(num_samples=8, local_steps=2, bits=0.2, frequency=0.5),
    ("mixed", "autofl-j"): Constants(num_samples=12, local_steps=2, bits=0.2, frequency=1.0),
    ("10 ms", "autofl-j"): Constants(num_samples=12, local_steps=4, bits=0.8, frequency=1.0),
    ("100 ms", "autofl-j"): Constants(num_samples=20, local_steps=8, bits=0.8, frequency=0.5),
    ("downlink", "autofl-j"): Constants(num_samples=12, local_steps=4, bits=0.8, frequency=1.0),
}
"""The best constants of each cell, by cell and algorithm, as `tune_command` finds them.

FedAvg's constants of the cells that are not listed are those of MAML."""
GRIDS = {
    ("paper", "autofl-j"): "--samples 8,12 --steps 1,2,4 --bits 0.1,0.2,0.4 --frequency 1",
    ("paper", "fedavg-j"): "--samples 5,8 --steps 2,4 --bits 0.1,0.2 --frequency 1",
    ("physical", "autofl-j"): "--samples 8,12,16 --steps 2,3,4 --bits 0.1,0.2,0.3 --frequency 1",
    (
        "tight",
        "autofl-j",
    ): "--samples 6,8,10 --steps 1,2,3 --bits 0.1,0.2,0.3 --frequency 0.4,0.5,0.6",
    ("mixed", "autofl-j"): "--samples 12,20 --steps 2 --bits 0.2 --frequency 0.7,1",
    ("10 ms", "autofl-j"): "--samples 12,20 --steps 4,8 --bits 0.4,0.8 --frequency 0.6,1",
    ("100 ms", "autofl-j"): "--samples 12,20 --steps 8,16 --bits 0.8,1.6 --frequency 0.3,0.5",
    ("downlink", "autofl-j"): "--samples 12,20 --steps 2,4,8 --bits 0.4,0.8 --frequency 0.6,1",
}
"""What is tried in each cell, around what pilots and the joint planner's own choices suggest."""


def tune_command(cell: str, algorithm: str) -> str:
    """The command that finds the constants of a cell, on seeds that do not judge."""
    settings = (
        "data.name=mnist",
        "compressor.name=entropy",
        f"seed={TUNING_SEED}",
        "stop.rounds=150",
        "evaluation.every=1",
        "evaluation.test_samples=200",
        *CELLS[cell],
    )
    words = " ".join(
        f"--set '{setting}'" if "{" in setting else f"--set {setting}" for setting in settings
    )
    num_seeds = 4 if cell in ("physical", "tight") else 2
    return f"autofl tune --arm {algorithm} --target 0.9 {GRIDS[cell, algorithm]} --seeds {num_seeds} {words}"


def carried_out(constants: Constants, algorithm: str) -> tuple[str, ...]:
    """Constants with the update, step sizes and compressor of the joint planner's algorithm."""
    own = {"num_samples": constants.num_samples, "frequency": constants.frequency}
    return (
        f"arm={algorithm}",
        *_given(constants),
        "planner.name=fixed",
        *(f"planner.{name}={value}" for name, value in own.items() if value is not None),
    )


def _given(constants: Constants) -> tuple[str, ...]:
    """What a rival that decides neither local steps nor bits takes over from the tuned constants."""
    selected = (
        ()
        if constants.num_selected is None
        else (f"simulation.num_selected={constants.num_selected}",)
    )
    return (
        f"learning.local_steps={constants.local_steps}",
        "compressor.name=entropy",
        *(() if constants.bits is None else (f"compressor.bits={float(constants.bits)}",)),
        *selected,
    )


def deadline(constants: Constants) -> float:
    """FedCS's T_round [s]: the slowest computing and the slowest upload that can be decoded, Table
    I's cell.
    """
    bits = MODEL_WEIGHTS["mlp", "mnist"] * (constants.bits or 32.0)
    upload = bits / (1e6 * 9.967)  # B log2(1 + phi), phi = 30 dB
    computing = (
        1.2e5 * constants.num_samples * constants.local_steps / (1e9 * (constants.frequency or 1.0))
    )
    return round(computing + upload, 6)


def digits(scale: JointScale) -> tuple[str, ...]:
    """The common settings of MNIST runs."""
    return (
        f"data.name={digits_here(scale.name)}",
        "evaluation.every=1",
        *_run(scale.rounds, scale.test_samples, scale.targets),
    )


def _run(rounds: int, test_samples: int, targets: tuple[float, float]) -> tuple[str, ...]:
    return (
        f"stop.rounds={rounds}",
        f"stop.target_accuracy={targets[1] + BEYOND:g}",
        f"evaluation.test_samples={test_samples}",
    )


AUTOFL_J = "AutoFL-J"
THRIFTY = "AutoFL-J thrifty"
FEDAVG_J = "FedAvg-J"
PLAIN = "AutoFL-J without compression"
TUNED_MAML = "tuned constants, MAML"
TUNED_FEDAVG = "tuned constants, FedAvg"
YANG = "Yang et al."
FEDCS = "FedCS"
ADAQUANT = "AdaQuantFL"
RIVALS = (YANG, FEDCS, ADAQUANT)


def arms_of(cell: str) -> dict[str, tuple[str, ...]]:
    """Every arm in a cell by name, without what all runs share."""
    maml = TUNED[cell, "autofl-j"]
    fedavg = TUNED.get((cell, "fedavg-j"), maml)
    work = f"planner.num_samples={maml.num_samples}"
    quantised = [word for word in _given(maml) if not word.startswith("compressor.")]
    return {
        **{label: (f"arm={name}",) for name, label in ALGORITHMS.items()},
        AUTOFL_J: ("arm=autofl-j",),
        THRIFTY: ("arm=autofl-j", f"planner.thrift={THRIFT}"),
        FEDAVG_J: ("arm=fedavg-j",),
        PLAIN: ("arm=autofl-j", "compressor.name=none"),
        TUNED_MAML: carried_out(maml, "autofl-j"),
        TUNED_FEDAVG: carried_out(fedavg, "fedavg-j"),
        YANG: ("arm=autofl-j", *_given(maml), "planner.name=yang", work),
        FEDCS: (
            *carried_out(maml, "autofl-j"),
            "selection.name=fedcs",
            "selection.share=0.5",
            f"selection.num_samples={maml.num_samples}",
            f"selection.deadline={deadline(maml)}",
        ),
        ADAQUANT: (
            "arm=autofl-j",
            *quantised,
            "compressor.name=quantise",
            "planner.name=adaquantfl",
            work,
        ),
    }


def _arms(
    study: str, cell: str, names: Sequence[str], shared: Sequence[str], num_seeds: int
) -> list[Arm]:
    every = arms_of(cell)
    return [Arm(study, name, (*shared, *CELLS[cell], *every[name]), num_seeds) for name in names]


def comparison(cell: str, scale: JointScale) -> list[Arm]:
    """Everybody in one cell."""
    brief = ("AutoFL", AUTOFL_J, FEDAVG_J, TUNED_MAML, YANG)
    names = tuple(arms_of(cell)) if scale.every_arm else brief
    return _arms(f"joint-{cell}", cell, names, digits(scale), scale.seeds)


def hard_cell(cell: str, scale: JointScale) -> list[Arm]:
    """A cell in which energy or speed is scarce."""
    names = (
        "AutoFL",
        AUTOFL_J,
        FEDAVG_J,
        TUNED_MAML,
        *((TUNED_FEDAVG, YANG) if scale.every_arm else ()),
    )
    return _arms(f"joint-{cell}", cell, names, digits(scale), scale.seeds)


def ternary(scale: JointScale) -> list[Arm]:
    """The planner without its coder: both send ternary updates of 1.66 bit, so that sending is most
    of a round.
    """
    constants = Constants(num_samples=12, local_steps=5, frequency=0.8)  # of 12 on seeds 101 to 104
    tuned = [
        word for word in carried_out(constants, "autofl-j") if not word.startswith("compressor.")
    ]
    told = {"AutoFL": ("arm=autofl",)} | {
        name: (*more, "compressor.name=ternary")
        for name, more in ((AUTOFL_J, ("arm=autofl-j",)), (TUNED_MAML, tuple(tuned)))
    }
    shared = (*digits(scale), *CELLS["physical"])
    return [
        Arm("joint-ternary", name, (*shared, *more), scale.seeds) for name, more in told.items()
    ]


DECISIONS = {
    "admission": "admission",
    "steps": "local steps",
    "samples": "samples",
    "frequency": "frequency",
    "band": "band",
    "bits": "bits",
}
"""What the joint planner decides: its setting, and in words."""
NOTHING = "nothing decided"


def ablation(scale: JointScale) -> list[Arm]:
    """Each decision left out, and each alone; what is not decided is AutoFL's: tau = 1, d =
    1/epsilon, 1 bit.
    """
    joint = ("arm=autofl-j",)
    off = {name: f"planner.{name}=false" for name in DECISIONS}
    told: dict[str, tuple[str, ...]] = {"AutoFL": ("arm=autofl",), AUTOFL_J: joint}
    told |= {f"without {words}": (*joint, off[name]) for name, words in DECISIONS.items()}
    if scale.every_arm:
        told[NOTHING] = (*joint, *off.values())
        for name, words in DECISIONS.items():
            told[f"only {words}"] = (
                *joint,
                *(switch for other, switch in off.items() if other != name),
            )
    shared = (*digits(scale), *CELLS["physical"])
    return [
        Arm("joint-ablation", name, (*shared, *more), scale.few_seeds)
        for name, more in told.items()
    ]


def besides(scale: JointScale) -> list[Arm]:
    """With what the paper leaves out: overhead in every round, and a downlink that takes time."""
    conditions: dict[str, tuple[str, tuple[str, ...]]] = {
        "10 ms of overhead": ("10 ms", ()),
        "100 ms of overhead": ("100 ms", ()),
    }
    conditions |= {f"downlink, {words}": ("downlink", more) for words, more in DOWNLINKS.items()}
    if not scale.every_arm:
        conditions = {name: conditions[name] for name in ("10 ms of overhead", "downlink, 4 bit")}
    arms = []
    for condition, (cell, more) in conditions.items():
        names = ("AutoFL", AUTOFL_J, TUNED_MAML)
        there = _arms("joint-besides", cell, names, (*digits(scale), *more), scale.few_seeds)
        arms += [replace(arm, reading=condition) for arm in there]
    return arms


PACE_THEN = [4.15, 0.0, 29.9, 4022.0, 5.47]
"""Of the pilots of that time."""
PACE_NAMES = ("constant", "per_step", "per_ue", "noise", "rounding")


def guesses(scale: JointScale) -> list[Arm]:
    """Pace of learning wrong by a factor of two, one constant at a time; twice a constant that is 0
    is no guess.
    """
    right = PACE_THEN
    told: dict[str, tuple[str, ...]] = {AUTOFL_J: ("arm=autofl-j",)}
    for place, name in enumerate(PACE_NAMES):
        if right[place] == 0.0:
            continue
        for sign, factor in (("×", 2.0), ("/", 0.5)):
            wrong = [
                value * factor if place == other else value for other, value in enumerate(right)
            ]
            told[f"{name} {sign} 2"] = ("arm=autofl-j", f"planner.pace={wrong}")
    if not scale.every_arm:
        told = {name: more for name, more in told.items() if not name.endswith("/ 2")}
    shared = (*digits(scale), *CELLS["physical"])
    return [
        Arm("joint-guesses", name, (*shared, *more), scale.few_seeds) for name, more in told.items()
    ]


def cifar10(scale: JointScale) -> list[Arm]:
    """LeNet-5 on CIFAR-10: the paper's four, AutoFL-J and FedAvg-J, every arm evaluated as often."""
    shared = (
        "data.name=cifar10",
        f"evaluation.every={scale.cifar_every}",
        *_run(scale.cifar_rounds, scale.test_samples, scale.cifar_targets),
    )
    names = (
        (*ALGORITHMS.values(), AUTOFL_J, FEDAVG_J)
        if scale.every_arm
        else ("AutoFL", "FedAvg-2", AUTOFL_J)
    )
    return _arms("joint-cifar10", "paper", names, shared, scale.few_seeds)


CHOSEN: dict[str, int] = {"paper": 20, "physical": 20, "tight": 20, "mixed": 20, "far": 20}
"""|A_k| that `autofl plan --planner joint --target 0.9 --set data.name=mnist` chooses in each cell,
in advance.
"""
CHOICE = "choice of autofl plan"


def choices(scale: JointScale) -> list[Arm]:
    """(P1): what autofl plan chooses, against constants of every |A_k|, d, tau and bits of a grid,
    in closed loop.
    """
    sizes = ((8, 2), (12, 2), (12, 4)) if scale.every_arm else ((8, 2),)
    arms = []
    for cell, selected in CHOSEN.items():
        shared = (*digits(scale), *CELLS[cell])
        own = (*shared, "arm=autofl-j", f"simulation.num_selected={selected}")
        arms.append(Arm("joint-choice", CHOICE, own, scale.grid, reading=cell))
        frequency = TUNED[cell, "autofl-j"].frequency if (cell, "autofl-j") in TUNED else 1.0
        for num_selected in (5, 10, 20):
            for d, tau in sizes:
                for bits in (0.2, 0.4):
                    constants = Constants(d, tau, bits, num_selected, frequency)
                    name = f"|A_k| = {num_selected}, d = {d}, tau = {tau}, {bits:g} bit"
                    more = carried_out(constants, "autofl-j")
                    arms.append(
                        Arm("joint-choice", name, (*shared, *more), scale.grid, reading=cell)
                    )
    return arms


STEPS_THEN: dict[bool, tuple[str, ...]] = {
    False: (
        "learning.inner_lr=0.03",
        "learning.outer_lr=0.25",
        "learning.grad_clip=5.0",
        "learning.guard=1.0",
    ),
    True: (
        "learning.inner_lr=0.06",
        "learning.outer_lr=0.15",
        "learning.grad_clip=2.0",
        "learning.guard=0.2",
    ),
}
"""Steps of the -j arms on digits, and on CIFAR-10."""
PLANNER_THEN: dict[bool, tuple[str, ...]] = {
    False: (f"planner.pace={PACE_THEN}",),
    True: (f"planner.pace={PACE_THEN}", "planner.least_samples=20", "planner.most_samples=50"),
}
"""What their planner knew."""


def as_measured(arm: Arm) -> Arm:
    """The arm with what was set and not decided when these studies were made; their results are of
    such runs.
    """
    words = arm.overrides
    if not {"arm=autofl-j", "arm=fedavg-j"} & set(words):
        return arm
    images = "data.name=cifar10" in words
    held = ("simulation.num_selected=5", "learning.lr_decay=0.1", *STEPS_THEN[images])
    if not any(word.startswith("planner.name=") for word in words):
        held += PLANNER_THEN[images]
    set_here = {word.partition("=")[0] for word in words}
    own = tuple(word for word in held if word.partition("=")[0] not in set_here)
    return replace(arm, overrides=(*own, *words))


MAKERS: dict[str, Callable[[JointScale], list[Arm]]] = {
    "joint-paper": lambda scale: comparison("paper", scale),
    "joint-physical": lambda scale: comparison("physical", scale),
    "joint-tight": lambda scale: hard_cell("tight", scale),
    "joint-mixed": lambda scale: hard_cell("mixed", scale),
    "joint-ternary": ternary,
    "joint-ablation": ablation,
    "joint-besides": besides,
    "joint-guesses": guesses,
    "joint-choice": choices,
    "joint-cifar10": cifar10,
}


def _measured(make: Callable[[JointScale], list[Arm]]) -> Callable[[JointScale], list[Arm]]:
    return lambda scale: [as_measured(arm) for arm in make(scale)]


JOINT_STUDIES = {name: _measured(make) for name, make in MAKERS.items()}
ALL = "joint"
"""Stands for every study of MNIST."""
DRAWN = ("joint-paper", "joint-physical", "joint-cifar10")
"""Studies of which the times to all accuracies are kept."""


def studies_named(names: Sequence[str]) -> list[str]:
    """The studies of these names, in their order; `joint` is all of MNIST."""
    for name in names:
        if name not in (ALL, *JOINT_STUDIES):
            raise AutoFLError(
                f"{name}: no such study; there are {', '.join((ALL, *JOINT_STUDIES))}"
            )
    wanted = set(names) | (
        {name for name in JOINT_STUDIES if name != "joint-cifar10"} if ALL in names else set()
    )
    return [name for name in JOINT_STUDIES if name in wanted]


ROUND_SECONDS = {"joint-cifar10": 0.25}
"""Seconds of one round with its evaluation on one core; 0.05 on MNIST."""
USUAL_ROUNDS = {"AutoFL": 200, "Per-FedAvg": 400, "FedAvg-1": 400, "FedAvg-2": 200}
"""Rounds until a run on MNIST is beyond its second target; about 70 for other arms. On CIFAR-10,
all there are.
"""


def seconds_of(arm: Arm, most_rounds: int) -> float:
    """About how long a run takes on one core."""
    usual = most_rounds if arm.study == "joint-cifar10" else USUAL_ROUNDS.get(arm.name, 70)
    return 2.0 + ROUND_SECONDS.get(arm.study, 0.05) * min(usual, most_rounds)


def _targets(study: str, scale: JointScale) -> tuple[float, float]:
    return scale.cifar_targets if study.endswith("cifar10") else scale.targets


def _reader(study: str, scale: JointScale) -> Reader:
    levels = LEVELS if study in DRAWN else ()
    return partial(read_joint, targets=_targets(study, scale), levels=levels)


def _about(study: str, scale: JointScale, data: str) -> dict[str, Any]:
    return {"targets": list(_targets(study, scale))}


def _page(folder: Path, names: Sequence[str] | None) -> "Page":
    from autofl_paper.joint_page import page_of

    return page_of(folder, names)


JOINT = Studies(
    folder="joint",
    scales=SCALES,
    arms=JOINT_STUDIES,
    named=studies_named,
    reader=_reader,
    about=_about,
    page=_page,
    seconds=seconds_of,
    most_seeds=TUNING_SEED - 1,
    beyond="; later ones tune constants",
)
