"""`mossp reproduce`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from mossp.app import exits, options, preparation, terminal

GO_ON = "Interrupted; run the same command again to go on."  # finished parts are on disk


def command(
    which: options.Experiment,
    report: options.ReproductionReport = Path("mossp-reproduction"),
    data_dir: options.DataFolder = None,
    quick: options.Quick = False,
    budget: options.Budget = "gradients",
    lam: options.Lams = None,
) -> int:
    """Run the paper's experiments.

    An interrupted run goes on where it was.
    """
    from mossp.experiments import reproduce
    from mossp.experiments.page import findings

    try:
        preparation.need("The reproduction", "jinja2", "matplotlib")
        if signal.getsignal(signal.SIGINT) is exits.leave:
            signal.signal(signal.SIGINT, exits.leaving(GO_ON))
        found = reproduce(
            which, report, data_dir=data_dir, quick=quick, budget=budget,
            lams=tuple(lam or ()) or None, progress=sys.stderr.isatty(),
        )  # fmt: skip
    except KeyboardInterrupt:
        return exits.fail(GO_ON, exits.INTERRUPTED)
    for sentence in findings(found.records, found.rates):
        terminal.say(sentence)
    terminal.say(f"Page: {found.page}")
    return exits.SUCCESS
