"""`mossp methods`."""

from __future__ import annotations

from mossp.app import exits

CONSTRAINTS = {"any": "any", "inequalities": "c_I", "linear": "Ax = b", "none": "none*"}
CONCAVE = {"any": "any", "smooth": "smooth+", "zero": "none"}
COLUMNS = ("name", "reference", "constr.", "g", "loops", "samples", "claim", "cost")
FOOT = """\
* with constraints it runs on the penalty problem f + rho/2 ||c||^2 + h - g
+ a g with kinks is replaced by its Moreau envelope
samples  L-smooth: f is; mean-sq.: the samples are, in mean square; Hölder: their
         gradients are; bounded: second moments; full: deterministic
claim    complexity to an eps-critical (eps-KKT) point that the article states
cost     gradients a step: mini-batches B, or all N samples
Which one for which problem, and what each gives up: docs/methods.md"""


def command() -> int:
    """List the methods."""
    from mossp import METHODS

    rows = [COLUMNS]
    for name, make in METHODS.items():
        method = make()
        about = method.about
        rows.append((
            name,
            f"{about.reference} {about.year}",
            CONSTRAINTS[about.constraints],
            CONCAVE[about.concave],
            "1" if about.single_loop else "2",
            about.assumption,
            about.complexity,
            "N" if method.momentum.full else f"{method.momentum.gradients} B",
        ))  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [" ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    print("\n".join([lines[0], "-" * len(max(lines, key=len)), *lines[1:], "", FOOT]))
    return exits.SUCCESS
