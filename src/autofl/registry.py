"""Parts by name: ours from a short list, a user's own as `module:object`, in TOML, on the command
line and in Python.

A part is a class or a function whose parameters are its settings. What a parameter needs and nobody
sets comes from the run it becomes part of (`Part.build`). Modules are imported when a part is asked
for, so planning loads no PyTorch.
"""

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from autofl.errors import AutoFLError
from autofl.ranges import Setting, check, settings_of

Kind = Literal[
    "algorithm",
    "planner",
    "channel",
    "link",
    "model",
    "data",
    "partition",
    "compressor",
    "aggregator",
    "selection",
    "attack",
]


@dataclass(frozen=True)
class Entry:
    """A line of the registry: where a part is, and what to call it."""

    target: str  # module:object
    label: str


PARTS: dict[Kind, dict[str, Entry]] = {
    "algorithm": {
        "per-fedavg": Entry("autofl.algorithms.perfedavg:PerFedAvg", "Per-FedAvg"),
        "fedavg": Entry("autofl.algorithms.fedavg:FedAvg", "FedAvg"),
        "fedprox": Entry("autofl.algorithms.fedprox:FedProx", "FedProx"),
        "ditto": Entry("autofl.algorithms.ditto:Ditto", "Ditto"),
        "scaffold": Entry("autofl.algorithms.scaffold:Scaffold", "SCAFFOLD"),
        "fedopt": Entry("autofl.algorithms.fedopt:FedOpt", "FedOpt"),
    },
    "planner": {
        "paper": Entry("autofl.planner.paper:PaperPlanner", "Algorithm 2 as printed"),
        "exact": Entry("autofl.planner.exact:ExactPlanner", "joint optimum of (P3) and (P4)"),
        "joint": Entry(
            "autofl.planner.joint:JointPlanner",
            "every decision at once, for the least learning time",
        ),
        "fixed": Entry("autofl.planner.fixed:FixedPlanner", "fixed samples"),
        "adaquantfl": Entry(
            "autofl.planner.adaquant:AdaQuantPlanner",
            "bits that grow as the loss falls (AdaQuantFL)",
        ),
        "yang": Entry(
            "autofl.planner.yang:YangPlanner",
            "least delay by band, power and frequency (Yang et al.)",
        ),
    },
    "channel": {
        "path-loss": Entry("autofl.channels.path_loss:PathLoss", "path loss times fading"),
        "radio": Entry(
            "autofl.channels.radio:Radio", "a radio link: 3GPP TR 38.901, shadows, fading, mobility"
        ),
        "trace": Entry("autofl.channels.trace:Trace", "gains from a file"),
    },
    "link": {
        "shannon": Entry("autofl.network.links.shannon:Shannon", "Shannon's capacity"),
        "gap": Entry("autofl.network.links.gap:Gap", "Shannon's capacity with a gap and a ceiling"),
        "nr-64qam": Entry("autofl.network.links.nr:Nr64", "MCS of NR up to 64-QAM, TS 38.214"),
        "nr-256qam": Entry("autofl.network.links.nr:Nr256", "MCS of NR up to 256-QAM, TS 38.214"),
        "table": Entry("autofl.network.links.table:Levels", "own levels of rate and SNR"),
    },
    "selection": {
        "uniform": Entry("autofl.selection.uniform:Uniform", "uniform"),
        "by-data": Entry("autofl.selection.by_data:ByData", "in proportion to data"),
        "fedcs": Entry("autofl.selection.fedcs:FedCS", "by deadline, the quickest first (FedCS)"),
    },
    "compressor": {
        "entropy": Entry(
            "autofl.compressors.entropy:Entropy", "unbiased rounding to one step, entropy-coded"
        ),
        "nearest": Entry(
            "autofl.compressors.nearest:Nearest", "nearest multiple of one step, for the way down"
        ),
        "ternary": Entry("autofl.compressors.ternary:Ternary", "unbiased ternary in blocks"),
        "quantise": Entry(
            "autofl.compressors.quantise:Quantise", "unbiased b-bit quantisation in blocks"
        ),
        "top-k": Entry("autofl.compressors.top_k:TopK", "largest weights, with error feedback"),
    },
    "aggregator": {
        "mean": Entry("autofl.robust.aggregators.mean:Mean", "weighted mean"),
        "unbiased": Entry("autofl.robust.aggregators.unbiased:Unbiased", "weights 1/(n q_i)"),
        "norm-bound": Entry(
            "autofl.robust.aggregators.norm_bound:NormBound",
            "mean of updates cut to a median length",
        ),
        "median": Entry("autofl.robust.aggregators.median:Median", "coordinate-wise median"),
        "trimmed-mean": Entry(
            "autofl.robust.aggregators.trimmed_mean:TrimmedMean", "mean without the extremes"
        ),
        "krum": Entry("autofl.robust.aggregators.krum:Krum", "multi-Krum"),
        "geometric-median": Entry(
            "autofl.robust.aggregators.geometric_median:GeometricMedian", "geometric median (RFA)"
        ),
        "centred-clipping": Entry(
            "autofl.robust.aggregators.centred_clipping:CentredClipping", "centred clipping"
        ),
        "mixed": Entry(
            "autofl.robust.aggregators.mixed:Mixed", "nearest-neighbour mixing, trimmed mean"
        ),
    },
    "attack": {
        "not-a-number": Entry("autofl.robust.attacks.simple:NotANumber", "NaN in every weight"),
        "huge": Entry("autofl.robust.attacks.simple:Huge", "a huge number in every weight"),
        "scaled": Entry("autofl.robust.attacks.simple:Scaled", "their update, far too long"),
        "sign-flip": Entry("autofl.robust.attacks.simple:SignFlip", "the opposite of their update"),
        "zeros": Entry("autofl.robust.attacks.simple:Zeros", "no change"),
        "noise": Entry("autofl.robust.attacks.simple:Noise", "Gaussian noise"),
        "replay": Entry("autofl.robust.attacks.simple:Replay", "their first update again"),
        "label-flip": Entry(
            "autofl.robust.attacks.simple:LabelFlip", "honest training on wrong labels"
        ),
        "little-is-enough": Entry(
            "autofl.robust.attacks.little_is_enough:LittleIsEnough",
            "hidden among the honest (ALIE)",
        ),
        "together": Entry(
            "autofl.robust.attacks.together:Together",
            "one direction for all, against the honest mean",
        ),
    },
    "model": {
        "mlp": Entry("autofl.models.mlp:mlp", "MLP with 100 hidden units"),
        "lenet5": Entry("autofl.models.lenet5:lenet5", "LeNet-5"),
    },
    "data": {
        "mnist5k": Entry("autofl.data.catalog:mnist5k", "MNIST-5k"),
        "mnist": Entry("autofl.data.catalog:mnist", "MNIST"),
        "fashion-mnist": Entry("autofl.data.catalog:fashion_mnist", "Fashion-MNIST"),
        "cifar10": Entry("autofl.data.catalog:cifar10", "CIFAR-10"),
        "npz": Entry("autofl.data.dataset:read_npz", "own arrays"),
    },
    "partition": {
        "iid": Entry("autofl.data.partition:Iid", "i.i.d."),
        "labels": Entry("autofl.data.partition:ByLabels", "by labels"),
        "dirichlet": Entry("autofl.data.partition:Dirichlet", "Dirichlet"),
        "own": Entry("autofl.data.partition:ByOwner", "own partition"),
    },
}


@dataclass(frozen=True)
class Part:
    """A part that was found: how it is made, and where it came from."""

    kind: Kind
    name: str
    label: str
    target: Any  # a class or a function that makes the part, or the part itself

    @property
    def is_factory(self) -> bool:
        return inspect.isclass(self.target) or inspect.isfunction(self.target)

    @property
    def settings(self) -> Mapping[str, Setting]:
        """The parameters of the part by name; none for one that is made already."""
        return settings_of(self.target) if self.is_factory else {}

    def check(self, given: Mapping[str, Any]) -> None:
        """Refuse in one line a setting that the part does not have, or a value out of its range."""
        for name in given:
            if name not in self.settings:
                raise AutoFLError(unknown_key(f"{self.kind} {self.name}", name, self.settings))
        check(f"{self.kind} {self.name}", self.settings, given)

    def build(
        self, given: Mapping[str, Any] | None = None, context: Mapping[str, Any] | None = None
    ) -> Any:
        """The part with these settings; parameters that are not among them come from the context by
        their names.

        A `Lazy` value of the context is made only if a parameter asks for it.
        """
        given = given or {}
        context = context or {}
        self.check(given)
        if not self.is_factory:
            check_part(self.kind, self.target, self.name)
            return self.target
        values = dict(given)
        for name, setting in self.settings.items():
            if name in values:
                continue
            if name in context:
                value = context[name]
                values[name] = value.make() if isinstance(value, Lazy) else value
            elif setting.is_needed:
                makes = (
                    "; a function is called to make the part"
                    if inspect.isfunction(self.target)
                    else ""
                )
                raise AutoFLError(
                    f"{self.kind} {self.name}: its setting {name!r} has no default; give it a value{makes}"
                )
        try:
            made = self.target(**values)
            check_part(self.kind, made, self.name)
            return made
        except AutoFLError:
            raise
        except (Exception, SystemExit) as error:  # a user's own code: anything may go wrong in it
            if self.name in PARTS[self.kind]:
                raise
            raise AutoFLError(f"{self.kind} {self.name}: {type(error).__name__}: {error}") from None

    def origin(self) -> dict[str, str]:
        """Where the part came from, for a manifest: its name and, for a user's own, the file and
        its hash.
        """
        if self.name in PARTS[self.kind]:
            return {"name": self.name}
        module = sys.modules.get(self.name.partition(":")[0])
        path = Path(getattr(module, "__file__", None) or "")
        if not path.is_file():
            return {"name": self.name}
        return {
            "name": self.name,
            "file": path.name,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }


NEEDS: dict[str, tuple[str, ...]] = {
    "algorithm": ("init", "client_update", "server_update"),
    "planner": ("init", "__call__"),
    "channel": ("gain", "estimate", "survival"),
    "link": ("law",),
    "selection": ("probability", "draw"),
    "compressor": ("update_bits", "init", "__call__", "unpack"),
    "aggregator": ("__call__",),
    "attack": ("__call__",),
    "partition": ("__call__",),
}
"""The functions that a part of each kind has."""


def check_part(kind: str, part: object, name: str = "") -> None:
    """Refuse in one line what cannot be a part of this kind: a class instead of an object, or a
    function missing.
    """
    said = f"{kind} {name}".strip()
    if inspect.isclass(part):
        raise AutoFLError(
            f"{said}: got the class {part.__name__}; give an object of it, {part.__name__}(...)"
        )
    if inspect.isbuiltin(part):
        raise AutoFLError(
            f"{said}: a function of Python's own, not such a part; docs/parts.md says what each kind needs"
        )
    missing = [
        function for function in NEEDS.get(kind, ()) if not callable(getattr(part, function, None))
    ]
    if missing:
        raise AutoFLError(
            f"{said}: {type(part).__name__} has no {missing[0]}; docs/parts.md says what a part of each kind needs"
        )


@dataclass(frozen=True)
class Lazy:
    """A value of the context that costs something: made only for a part that asks for it."""

    make: Callable[[], Any]


def unknown_key(owner: str, name: str, known: Mapping[str, Any]) -> str:
    """One line about a setting that a part does not have."""
    if not known:
        return f"{owner}: unknown setting {name!r}; it has none"
    nearest = difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)[0]
    return f"{owner}: unknown setting {name!r}; the nearest is {nearest!r}"


def find(kind: Kind, name: str) -> Part:
    """The part of this name: one of ours, or `module:object` of the user's, looked for in the
    working folder too.
    """
    entry = PARTS[kind].get(name)
    if entry is not None:
        return Part(kind, name, entry.label, _object(entry.target))
    check_name(kind, name)
    target = _own(kind, name)
    return Part(kind, name, str(getattr(target, "label", name.rpartition(":")[2])), target)


def check_name(kind: Kind, name: str, also: tuple[str, ...] = ()) -> None:
    """Refuse a name that is neither ours nor `module:object`, without importing anything."""
    if ":" not in name and name not in PARTS[kind] and name not in also:
        known = ", ".join((*also, *PARTS[kind]))
        raise AutoFLError(
            f"{kind} {name!r} is unknown; there are {known}, or your own as module:object"
        )


def label_of(kind: Kind, name: str) -> str:
    """What to call a part, without importing one of ours."""
    entry = PARTS[kind].get(name)
    return entry.label if entry is not None else find(kind, name).label


def _own(kind: Kind, name: str) -> Any:
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # a program that pip installs does not look where it is started
    if module.endswith(".py") or not attribute:
        raise AutoFLError(
            f"{kind} {name}: write it as module:object, for example {module.removesuffix('.py')}:Name"
        )
    try:
        return _object(name)
    except ModuleNotFoundError as error:
        if error.name is not None and module.split(".")[0] == error.name.split(".")[0]:
            raise AutoFLError(
                f"{kind} {name}: no module {module!r} in {here} or among the installed ones"
            ) from None
        raise AutoFLError(
            f"{kind} {name}: {module} needs {error.name}, which is not installed"
        ) from None
    except AttributeError:
        raise AutoFLError(f"{kind} {name}: {module} has no {attribute!r}") from None
    except (Exception, SystemExit) as error:  # the user's own code: anything may go wrong in it
        raise AutoFLError(
            f"{kind} {name}: {module} cannot be imported ({type(error).__name__}: {error})"
        ) from None


def _object(target: str) -> Any:
    module, _, attribute = target.partition(":")
    value: Any = importlib.import_module(module)
    for step in attribute.split("."):
        value = getattr(value, step)
    return value
