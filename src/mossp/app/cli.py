"""The command `mossp`.

    mossp fit         fit a sparse linear model under constraints to a file of your own
    mossp predict     predict with it
    mossp show        look at it
    mossp export      write it as JSON, SQL or ONNX
    mossp solve       solve the built-in example, or a problem written in Python
    mossp methods     the methods and what they are
    mossp reproduce   the paper's experiments: tables, figures and a page

Each is a file in `mossp.app.commands`; their options are in `mossp.app.options`.

Exit codes: 0 the certificate holds; 1 it ran and the certificate does not hold; 2 wrong input or
something is missing; 130 interrupted.
"""

# No `from __future__ import annotations`: typer reads the annotations of functions in a function.
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any

from mossp._base.disk import on_by_default
from mossp.app import exits


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; errors become one sentence.

    With MOSSP_TRACEBACK set, an error keeps its traceback.
    """
    if arguments is None:
        signal.signal(signal.SIGINT, exits.leave)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without a ✓ gets a ? for it
            stream.reconfigure(errors="replace")
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        return exits.fail("The mossp command needs typer and rich: pip install 'mossp[cli]'")
    try:
        with on_by_default():
            code = application()(
                args=list(sys.argv[1:] if arguments is None else arguments) or ["--help"],
                prog_name="mossp",
                standalone_mode=False,
            )
    except BrokenPipeError:  # as in `mossp methods | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.NOT_CERTIFIED
    except (ImportError, OSError, TypeError, ValueError) as error:
        if os.environ.get("MOSSP_TRACEBACK"):
            raise
        # A caret must stay below its place, and faults of several columns have a line each.
        whole = hasattr(error, "position") or hasattr(error, "lines")
        return exits.fail(str(error), verbatim=whole)
    except Exception as error:  # what the parser of the command line raises
        if not hasattr(error, "format_message"):
            raise
        return exits.fail(error.format_message())
    if code == exits.TOO_EARLY:
        return exits.fail(exits.NO_RESULT, exits.INTERRUPTED)
    return code if isinstance(code, int) else exits.SUCCESS


def application() -> Any:
    """The typer application: the commands, in the order of the help."""
    import typer

    from mossp.app.commands import COMMANDS

    app = typer.Typer(
        help="Constrained stochastic optimisation with difference-of-convex regularisers.",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def show_version(wanted: bool) -> None:
        if wanted:
            from mossp import __version__

            print(f"mossp {__version__}")
            raise typer.Exit

    @app.callback()
    def root(
        version: Annotated[
            bool,
            typer.Option(
                "--version", callback=show_version, is_eager=True, help="Show the version."
            ),
        ] = False,
    ) -> None:
        pass

    for name, command in COMMANDS.items():
        app.command(name)(command)
    return app


if __name__ == "__main__":
    sys.exit(main())
