"""The commands, one a file, in the order in which the help lists them."""

from collections.abc import Callable

from mossp.app.commands import export, fit, methods, predict, reproduce, show, solve

COMMANDS: dict[str, Callable[..., int]] = {
    "fit": fit.command,
    "predict": predict.command,
    "show": show.command,
    "export": export.command,
    "solve": solve.command,
    "reproduce": reproduce.command,
    "methods": methods.command,
}
