"""`mossp show`."""

from __future__ import annotations

import json
from typing import Any

from mossp.app import exits, options, terminal


def command(model: options.ModelFile, as_json: options.AsJson = False) -> int:
    """Show a fitted model."""
    from mossp.app.model import Model

    fitted = Model.load(model)
    if as_json:
        print(json.dumps(terminal.model_object(fitted), allow_nan=False))
        return exits.SUCCESS
    for line in described(fitted):
        terminal.say(line)
    terminal.print_model(fitted)
    return exits.SUCCESS


def described(model: Any) -> list[str]:
    """What a model is and where it comes from, as far as its file tells."""
    about = model.about
    target = f" of {model.target}" if model.target else ""
    regularizer = f", regulariser {about['regularizer']}" if "regularizer" in about else ""
    lines = [f"A {model.kind}{target}, loss {model.loss}{regularizer}"]
    if about.get("task") == "pu":
        share = f", a share {about['prior_']:.3g} of them positive" if "prior_" in about else ""
        lines.append(f"from positive and unlabelled rows{share}")
    if "max_fpr" in about:
        ends = f"{about.get('min_fpr', 0.0):g} to {about['max_fpr']:g}"
        lines.append(f"for false positive rates from {ends}")
    for kind in ("equality", "inequality"):
        lines += [f"{kind}: {text}" for text in about.get(kind, ())]
    if about.get("units") == "data" and (about.get("equality") or about.get("inequality")):
        lines.append("these constraints are in the units of the data")
    lines += model.features.notes
    lines += [f"id: {name}" for name in model.id]
    lines += [f"rate: {text}" for text in about.get("rates", ())]
    for kind in ("parity", "opportunity"):
        if about.get(kind) is not None:
            bound = f"covariance within {about[kind]:g}"
            lines.append(f"{kind} of {about.get('sensitive')}: {bound}")
    if "data" in about:
        version = f" by mossp {about['version']}" if "version" in about else ""
        created = f", {about['created']}" if "created" in about else ""
        lines.append(f"fitted to {about['data']}{version}{created}")
    if "certificate" in about:
        verdict = "holds" if about["certificate"]["holds"] else "does NOT hold"
        line = f"the certificate {verdict} at {about['certificate']['tol']:.0e}"
        forms = (("violation", ".1e"), ("objective", ".8g"))
        known = [f"{n} {about[n]:{form}}" for n, form in forms if about.get(n) is not None]
        status = f"{about['status']}: " if "status" in about else ""
        lines.append(f"{status}{'; '.join(filter(None, [line, ', '.join(known)]))}")
    return lines
