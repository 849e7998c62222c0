"""What server weights 1/(n q_i) gain and cost against the plain mean of what is decoded.

    python benchmarks/weights.py

Who is heard comes from the real network (planner, fading, selection), 600 rounds. UE i pulls to a
corner c_i of its own, f_i = |w - c_i|^2/2, with noise of variance 1: gamma_F^2 = mean |c_i - mean
c|^2 = 1, and grad F = w - mean c.
"""

import numpy as np

SETTINGS = {
    "everybody near (paper, R = 200 m)": [],
    "exact, physical, R = 300 m": [
        "preset=physical",
        "cell.distance={disc=300}",
        "planner.name=exact",
    ],
    "exact, R = 1000 m": ["cell.distance={disc=1000}", "planner.name=exact"],
}
STEPS = (0.2, 0.05, 0.01)
NUM_ROUNDS = 600
LARGEST = 100.0  # of the aggregator `unbiased`: weights are capped at so many times 1/n


def main() -> None:
    import autofl
    from autofl.core.horizon import draw_horizon
    from autofl.experiments.cell import build_network
    from autofl.forecast.participation import participation
    from autofl.rng import stream

    headings = [
        "setting",
        "least q_i",
        "chi^2",
        "E sum a_i^2, mean / 1/(n q)",
        "Var sum a_i of 1/(n q)",
    ]
    print("|", " | ".join([*headings, *(f"beta = {beta:g}" for beta in STEPS)]), "|")
    print("|---|---|---|---|---|" + "---|" * len(STEPS))
    for name, overrides in SETTINGS.items():
        horizon = draw_horizon(
            build_network(autofl.load_settings(overrides=overrides).resolved()), NUM_ROUNDS
        )
        heard, num_ue = horizon.decoded, horizon.decoded.shape[1]
        reached = heard.any(axis=0)
        q = heard.mean(axis=0)
        plain = heard / np.maximum(heard.sum(axis=1, keepdims=True), 1)
        inverse = (
            np.where(heard, np.minimum(1.0 / np.where(reached, q, 1.0), LARGEST), 0.0) / num_ue
        )
        c = np.eye(num_ue) * np.sqrt(num_ue / (num_ue - 1))  # corners of a simplex: spread 1
        cells = [
            " / ".join(
                f"{_settled(weight, c, beta, stream(1, 'weights')):.3g}"
                for weight in (plain, inverse)
            )
            for beta in STEPS
        ]
        square = [float((weight**2).sum(axis=1).mean()) for weight in (plain, inverse)]
        lost = "" if reached.all() else f", {int((~reached).sum())} UEs never"
        print(f"| {name} | {q.min():.3g}{lost} | {participation(heard).skew:.2f} | {square[0]:.2f} / {square[1]:.2f} |",
              f"{inverse.sum(axis=1).var():.2f} |",
              " | ".join(cells), "|", flush=True)  # fmt: skip


def _settled(weight: np.ndarray, c: np.ndarray, beta: float, rng: np.random.Generator) -> float:
    """Mean of |grad F|^2 over the second half of the rounds, played again until the start is
    forgotten.
    """
    num_ue, w, squares = len(c), c.mean(axis=0), []
    rounds = max(len(weight), int(20 / beta))
    for k in range(rounds):
        a = weight[k % len(weight)]
        noise = rng.standard_normal(c.shape) / np.sqrt(num_ue)  # of length 1 a UE
        w = w - beta * (a @ (w - c + noise))
        if 2 * k >= rounds:
            squares.append(float(((w - c.mean(axis=0)) ** 2).sum()))
    return float(np.mean(squares))


if __name__ == "__main__":
    main()
