"""The command `mossp`.

    mossp solve       solve the built-in example, print the certificate, write a report
    mossp methods     the methods and what they are
    mossp reproduce   the paper's experiments: tables, figures and a page

Exit codes: 0 the certificate holds; 1 it ran and the certificate does not hold; 2 wrong input or
something is missing; 130 interrupted.
"""

# No `from __future__ import annotations`: typer reads the annotations of functions in a function.
import contextlib
import dataclasses
import importlib.util
import json
import math
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

SUCCESS, NOT_CERTIFIED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130
TOO_EARLY = -1  # interrupted before there was a result; not an exit code
NO_RESULT = "Interrupted before there was a result."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; errors become one sentence.

    With MOSSP_TRACEBACK set, an error keeps its traceback.
    """
    if arguments is None:
        signal.signal(signal.SIGINT, _leave)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without a ✓ gets a ? for it
            stream.reconfigure(errors="replace")
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        return _fail("The mossp command needs typer and rich: pip install 'mossp[cli]'")
    try:
        code = application()(
            args=list(sys.argv[1:] if arguments is None else arguments) or ["--help"],
            prog_name="mossp",
            standalone_mode=False,
        )
    except BrokenPipeError:  # as in `mossp methods | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOT_CERTIFIED
    except (ImportError, OSError, TypeError, ValueError) as error:
        if os.environ.get("MOSSP_TRACEBACK"):
            raise
        return _fail(str(error))
    except Exception as error:  # what the parser of the command line raises
        if not hasattr(error, "format_message"):
            raise
        return _fail(error.format_message())
    if code == TOO_EARLY:
        return _fail(NO_RESULT, INTERRUPTED)
    return code if isinstance(code, int) else SUCCESS


def _fail(sentence: str, code: int = WRONG_INPUT) -> int:
    sentence = " ".join(sentence.split())
    print(f"mossp: {sentence}", file=sys.stderr)
    return code


def _leave(*_: Any) -> None:
    """End at once: Ctrl-C outside the run, which has a handler of its own.

    An exception does not do it: raised while JAX compiles, it may be swallowed, or Python may crash
    on its way out.
    """
    os.write(2, f"\nmossp: {NO_RESULT}\n".encode())
    os._exit(INTERRUPTED)


def application() -> Any:
    """The typer application."""
    import typer

    app = typer.Typer(
        help="Constrained stochastic optimisation with difference-of-convex regularisers.",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    option = typer.Option

    def show_version(wanted: bool) -> None:
        if wanted:
            from mossp import __version__

            print(f"mossp {__version__}")
            raise typer.Exit

    @app.callback()
    def root(
        version: Annotated[
            bool,
            option("--version", callback=show_version, is_eager=True, help="Show the version."),
        ] = False,
    ) -> None:
        pass

    @app.command("solve")
    def solve_command(
        method: Annotated[str, option(help="auto, or one of `mossp methods`.")] = "auto",
        steps: Annotated[
            int | None, option(help="Steps of each replica, at most; else from the data.")
        ] = None,
        batch_size: Annotated[int, option(help="Samples a step.")] = 32,
        replicas: Annotated[int, option(help="Independent runs; the best is returned.")] = 1,
        starts: Annotated[int, option(help="Different starts; the best end is returned.")] = 1,
        polish: Annotated[
            bool | None, option(help="End with Newton's method, or not; auto decides.")
        ] = None,
        seed: Annotated[int, option(help="Decides the start and the samples drawn.")] = 0,
        tol: Annotated[
            float | None,
            option(help="What the certificate must meet: 1e-10 if the method is exact, else 0.01."),
        ] = None,
        schedule: Annotated[str, option(help="How parameters follow the step.")] = "auto",
        out: Annotated[Path, option(help="Folder of the report.")] = Path("mossp-report"),
        as_json: Annotated[bool, option("--json", help="Print one JSON object instead.")] = False,
        no_report: Annotated[bool, option("--no-report", help="Write no report.")] = False,
    ) -> int:
        """Solve the built-in example: sparse logistic regression on a sphere."""
        settings = {
            "method": method, "steps": steps, "batch_size": batch_size, "replicas": replicas,
            "seed": seed, "tol": tol, "schedule": schedule, "starts": starts, "polish": polish,
        }  # fmt: skip
        try:
            return _solve(settings, None if no_report else out, as_json)
        except KeyboardInterrupt:
            return TOO_EARLY

    @app.command("reproduce")
    def reproduce_command(
        which: Annotated[
            str, typer.Argument(help="sphere, quadratics, rates or all.", show_default=False)
        ],
        out: Annotated[Path, option(help="Folder of the page, tables and figures.")] = Path(
            "mossp-reproduction"
        ),
        data_dir: Annotated[
            Path | None,
            option(help="Folder of a9a, phishing and australian; else MOSSP_DATA, or downloaded."),
        ] = None,
        quick: Annotated[
            bool, option("--quick", help="Small budgets on generated data, within a minute.")
        ] = False,
        budget: Annotated[
            str, option(help="gradients: as many for each; seconds: the paper's equal time.")
        ] = "gradients",
        lam: Annotated[
            list[float] | None,
            option(help="Weight of the regulariser on the sphere; may be repeated. 0.01."),
        ] = None,
    ) -> int:
        """Run the paper's experiments. An interrupted run goes on where it was."""
        try:
            return _reproduce(which, out, data_dir, quick, budget, lam)
        except KeyboardInterrupt:
            return _fail("Interrupted; run the same command again to go on.", INTERRUPTED)

    @app.command("methods")
    def methods_command() -> int:
        """List the methods."""
        return _methods()

    return app


# mossp solve ------------------------------------------------------------------------------------


def _solve(settings: dict[str, Any], out: Path | None, as_json: bool) -> int:
    import mossp
    from mossp import examples

    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"--out must name a folder, but {out} is a file.")
    if out is not None:
        _need("A report", "jinja2", "matplotlib")
    keep_compiled_programs()
    problem, start, names = examples.breast_cancer()
    # What a package prints goes to stderr, and stdout is ours. So does the bar.
    with contextlib.redirect_stdout(sys.stderr), _plain_warnings():
        result = mossp.solve(
            problem, start(settings["seed"]), progress=sys.stderr.isatty(), **settings
        )
    if as_json:
        print(json.dumps(as_object(result, names), allow_nan=False))
    else:
        _print_result(result)
    sys.stdout.flush()
    if out is not None:
        from mossp.report import write_page

        title = "Breast cancer: sparse logistic regression on a sphere"
        path = write_page(result, out, title=title, names=names)
        print(f"Report: {path}", file=sys.stderr if as_json else sys.stdout)
    if result.status is mossp.Status.INTERRUPTED:
        return INTERRUPTED
    return SUCCESS if result.success else NOT_CERTIFIED


def _need(what: str, *packages: str) -> None:
    """Say before the run, not after it, what is missing."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"{what} needs {' and '.join(missing)}: pip install 'mossp[cli]'")


def _print_result(result: Any) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from mossp.report import certificate_rows, explanation, numbers

    console = Console(highlight=False)
    s = result.settings
    console.print(
        f"{s['method']}, {numbers.counted(result.steps, 'step')}, "
        f"{numbers.counted(len(result.funs), 'replica')}, "
        f"{numbers.counted(result.gradients, 'sample gradient')} each, "
        f"{numbers.duration(result.seconds)} "
        f"(+ {numbers.duration(result.compile_seconds)} to prepare and compile)",
        soft_wrap=True,
    )
    nonzeros = int(np.count_nonzero(result.x))
    console.print(
        f"objective {numbers.value(result.fun)}, violation {numbers.residual(result.violation)}, "
        f"{nonzeros} of {np.size(result.x)} coefficients nonzero",
        soft_wrap=True,
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("certificate")
    table.add_column("")
    table.add_column("value", justify="right")
    table.add_column("needed", justify="right")
    table.add_column("holds")
    marks = {
        True: Text("✓ yes", style="green"),
        False: Text("✗ no", style="red"),
        None: Text(numbers.NONE, style="dim"),
    }
    for row in certificate_rows(result):
        table.add_row(row.name, row.symbol, row.value, row.bound, marks[row.holds])
    console.print(table)
    mark, style = ("✓", "bold green") if result.success else ("✗", "bold red")
    verdict = Text(f"{mark} {result.status.name}: ", style=style).append(explanation(result))
    console.print(verdict, soft_wrap=True)


def as_object(result: Any, names: Sequence[str]) -> dict[str, Any]:
    """A result over named variables as what JSON can hold; NaN and infinity become null."""
    certificate = dataclasses.asdict(result.certificate)
    certificate |= {"tol": result.tol, "holds": result.certificate.is_kkt(result.tol)}
    return _jsonable(
        {
            "x": dict(zip(names, np.ravel(result.x).tolist(), strict=True)),
            "fun": result.fun,
            "violation": result.violation,
            "success": result.success,
            "status": result.status.name,
            "message": result.message,
            "certificate": certificate,
            "steps": result.steps,
            "gradients": result.gradients,
            "seconds": result.seconds,
            "compile_seconds": result.compile_seconds,
            "settings": result.settings,
        }
    )


def _jsonable(content: Any) -> Any:
    if isinstance(content, dict):
        return {str(name): _jsonable(v) for name, v in content.items()}
    if isinstance(content, (list, tuple)):
        return [_jsonable(v) for v in content]
    if hasattr(content, "tolist"):
        return _jsonable(content.tolist())
    if isinstance(content, float) and not math.isfinite(content):
        return None
    if isinstance(content, (str, int, float, bool, type(None))):
        return content
    return str(content)


@contextlib.contextmanager
def _plain_warnings() -> Any:
    """A warning of ours is one line on stderr."""

    def show(message: Warning | str, *_: Any) -> None:
        print(f"mossp: warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*persistent compilation cache.*")
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def keep_compiled_programs() -> Path | None:
    """Let JAX keep what it compiles, so that the next run starts at once; where, or None.

    The folder is $MOSSP_CACHE, or mossp/jax in the user's cache. One that cannot be written to is
    no reason to stop.
    """
    import jax

    own, base = os.environ.get("MOSSP_CACHE"), os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(own) if own else Path(base or Path.home() / ".cache") / "mossp" / "jax"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    if not os.access(folder, os.W_OK):
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return folder


# mossp reproduce --------------------------------------------------------------------------------


def _reproduce(
    which: str, out: Path, data_dir: Path | None, quick: bool, budget: str, lam: list[float] | None
) -> int:
    from mossp.experiments import reproduce

    _need("The reproduction", "jinja2", "matplotlib")
    keep_compiled_programs()
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, _leave_reproduction)
    found = reproduce(
        which, out, data_dir=data_dir, quick=quick, budget=budget, lams=tuple(lam or ()) or None,
        progress=sys.stderr.isatty(),
    )  # fmt: skip
    from mossp.experiments.page import findings

    for sentence in findings(found.records, found.rates):
        print(sentence)
    print(f"Page: {found.page}")
    return SUCCESS


def _leave_reproduction(*_: Any) -> None:
    """Finished parts are on disk, and nothing else is worth waiting for."""
    os.write(2, b"\nmossp: Interrupted; run the same command again to go on.\n")
    os._exit(INTERRUPTED)


# mossp methods ----------------------------------------------------------------------------------


CONSTRAINTS = {"any": "any", "inequalities": "c_I", "linear": "Ax = b", "none": "none*"}
CONCAVE = {"any": "any", "smooth": "smooth+", "zero": "none"}
METHOD_COLUMNS = ("name", "reference", "constr.", "g", "loops", "samples", "claim", "cost")
METHODS_FOOT = """\
* with constraints it runs on the penalty problem f + rho/2 ||c||^2 + h - g
+ a g with kinks is replaced by its Moreau envelope
samples  L-smooth: f is; mean-sq.: the samples are, in mean square; Hölder: their
         gradients are; bounded: second moments; full: deterministic
claim    complexity to an eps-critical (eps-KKT) point that the article states
cost     gradients a step: mini-batches B, or all N samples
Which one for which problem, and what each gives up: docs/methods.md"""


def _methods() -> int:
    from mossp import METHODS

    rows = [METHOD_COLUMNS]
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
    print("\n".join([lines[0], "-" * len(max(lines, key=len)), *lines[1:], "", METHODS_FOOT]))
    return SUCCESS


if __name__ == "__main__":
    sys.exit(main())
