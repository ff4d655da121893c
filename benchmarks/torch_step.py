"""Cost of a step of mossp.torch.MoSSP, as a ratio to that of torch.optim.AdamW.

    python benchmarks/torch_step.py

A network with a million weights on mini-batches of 128, in single precision. Every round times one
step of every optimiser, in turn and on a network of its own: the whole training step (forward,
backward and the optimiser) and the optimiser's own part. Ratios are the medians over the rounds of
the ratio within a round, so that what slows a round down slows both.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import mossp
from mossp.torch import MoSSP

ROUNDS, WARM, BATCH, WIDTHS, BOUND = 100, 10, 128, (784, 680, 680, 10), 1.5
POLYAK = {"momentum": "polyak", "mu": 1e-3}
REGULARIZERS = {
    "L1": mossp.L1(1e-5), "L1MinusL2": mossp.L1MinusL2(1e-5), "MCP": mossp.MCP(1e-5),
}  # fmt: skip


def network() -> Any:
    torch.manual_seed(0)
    layers: list[Any] = []
    for i, j in itertools.pairwise(WIDTHS):
        layers += [torch.nn.Linear(i, j), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def contender(make: Callable[[Any], Any], closure_calls: int) -> Callable[[], tuple[float, float]]:
    """A function that takes a step: the seconds of all of it, and of the optimiser alone."""
    model = network()
    optimizer = make(model.parameters())
    X, y = torch.randn(BATCH, WIDTHS[0]), torch.randint(WIDTHS[-1], (BATCH,))
    inside = 0.0

    def closure() -> Any:
        nonlocal inside
        began = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(model(X), y)
        loss.backward()
        inside += time.perf_counter() - began
        return loss

    def step() -> tuple[float, float]:
        nonlocal inside
        inside, began = 0.0, time.perf_counter()
        if closure_calls == 1:  # as one writes it for AdamW
            optimizer.zero_grad()
            closure()
            optimizer.step()
        else:
            optimizer.step(closure)
        seconds = time.perf_counter() - began
        return seconds, seconds - inside

    return step


def main() -> None:
    contenders = {"AdamW": contender(lambda p: torch.optim.AdamW(p, lr=1e-3), 1)}
    for name, reg in REGULARIZERS.items():
        contenders[f"polyak, {name}"] = contender(lambda p, reg=reg: MoSSP(p, reg, **POLYAK), 1)
    contenders["recursive, L1"] = contender(lambda p: MoSSP(p, REGULARIZERS["L1"], mu=1e-3), 2)
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for round_ in range(WARM + ROUNDS):
        for name, step in contenders.items():
            taken = step()
            if round_ >= WARM:
                seconds[name].append(taken)
    count = sum(p.numel() for p in network().parameters())
    threads = torch.get_num_threads()
    print(f"{count:,} weights, batch {BATCH}, {threads} threads; medians of {ROUNDS} rounds")
    print(f"{'':<20} whole step ms  / AdamW   optimiser ms  / AdamW   (bound {BOUND:g}, L1)")
    base = np.array(seconds["AdamW"])
    for name, each in seconds.items():
        ms, ratio = 1e3 * np.median(each, axis=0), np.median(np.array(each) / base, axis=0)
        short = "   SHORT" if name == "polyak, L1" and ratio.max() > BOUND else ""
        print(f"{name:<20} {ms[0]:10.2f} {ratio[0]:10.2f} {ms[1]:13.2f} {ratio[1]:9.2f}{short}")


if __name__ == "__main__":
    main()
