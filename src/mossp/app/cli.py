"""The command `mossp`.

    mossp fit         fit a sparse linear model under constraints to a file of your own
    mossp predict     predict with it
    mossp show        look at it
    mossp solve       solve the built-in example, or a problem written in Python
    mossp methods     the methods and what they are
    mossp reproduce   the paper's experiments: tables, figures and a page

Exit codes: 0 the certificate holds; 1 it ran and the certificate does not hold; 2 wrong input or
something is missing; 130 interrupted.
"""

# No `from __future__ import annotations`: typer reads the annotations of functions in a function.
import contextlib
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from mossp.app import terminal

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
        return _fail(str(error), as_it_is=hasattr(error, "position"))  # its caret must stay
    except Exception as error:  # what the parser of the command line raises
        if not hasattr(error, "format_message"):
            raise
        return _fail(error.format_message())
    if code == TOO_EARLY:
        return _fail(NO_RESULT, INTERRUPTED)
    return code if isinstance(code, int) else SUCCESS


def _fail(sentence: str, code: int = WRONG_INPUT, as_it_is: bool = False) -> int:
    sentence = sentence if as_it_is else " ".join(sentence.split())
    terminal.say(f"mossp: {sentence}", sys.stderr)
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

    @app.command("fit")
    def fit_command(
        train: Annotated[
            Path,
            typer.Argument(help="CSV, TSV, Parquet or LIBSVM.", metavar="FILE", show_default=False),
        ],
        target: Annotated[
            str | None, option(help="The column to predict; LIBSVM has its labels.")
        ] = None,
        loss: Annotated[
            str | None,
            option(
                help="logistic, huberized-hinge, squared, huber:1, quantile:0.5, poisson; else "
                "logistic for two classes or text, squared for numbers."
            ),
        ] = None,
        regularizer: Annotated[
            str,
            option(
                help="l1, l1-l2, mcp, scad, ...:strength, as in l1-l2:0.01; without a strength, "
                "5-fold cross-validation chooses it."
            ),
        ] = "l1",
        equality: Annotated[
            list[str] | None,
            option(help='As in "sum(x**2) = 1", x the coefficients; may be repeated.'),
        ] = None,
        inequality: Annotated[
            list[str] | None,
            option(help='As in "age <= 0.5" or "norm(x[0:3]) <= 1"; may be repeated.'),
        ] = None,
        nonnegative: Annotated[bool, option("--nonnegative", help="Coefficients >= 0.")] = False,
        no_intercept: Annotated[bool, option("--no-intercept", help="No intercept.")] = False,
        balanced: Annotated[bool, option("--balanced", help="Classes count alike.")] = False,
        sensitive: Annotated[
            str | None, option(help="A protected attribute, which is then no feature.")
        ] = None,
        parity: Annotated[
            float | None, option(help="Bound on its covariance with the margin.")
        ] = None,
        opportunity: Annotated[
            float | None, option(help="The same among the rows of the positive class.")
        ] = None,
        exclude: Annotated[
            list[str] | None, option(help="A column to leave out; may be repeated.")
        ] = None,
        no_standardize: Annotated[
            bool, option("--no-standardize", help="Take the columns as they are.")
        ] = False,
        test: Annotated[float, option(help="Share of the rows that is kept for a test.")] = 0.2,
        test_file: Annotated[Path | None, option(help="Rows for the test, instead.")] = None,
        format: Annotated[
            str | None, option(help="csv, tsv, parquet or libsvm, where the name does not tell.")
        ] = None,
        method: Annotated[str, option(help="auto, or one of `mossp methods`.")] = "auto",
        steps: Annotated[int | None, option(help="Steps, at most.")] = None,
        batch_size: Annotated[int | None, option(help="Samples a step.")] = None,
        starts: Annotated[int, option(help="Different starts; the best end is kept.")] = 1,
        seed: Annotated[int, option(help="Decides the split and the samples drawn.")] = 0,
        tol: Annotated[float | None, option(help="What the certificate must meet.")] = None,
        out: Annotated[Path, option(help="File of the model.")] = Path("model.mossp"),
        force: Annotated[
            bool,
            option("--force", help="Replace a good model even by one whose certificate fails."),
        ] = False,
        report: Annotated[Path, option(help="Folder of the report.")] = Path("mossp-report"),
        no_report: Annotated[bool, option("--no-report", help="Write no report.")] = False,
        as_json: Annotated[bool, option("--json", help="Print one JSON object instead.")] = False,
    ) -> int:
        """Fit a sparse model to a file of your own."""
        wanted = {
            "train": train, "target": target, "loss": loss, "regularizer": regularizer,
            "equality": equality or (), "inequality": inequality or (),
            "nonnegative": nonnegative, "intercept": not no_intercept, "balanced": balanced,
            "sensitive": sensitive, "parity": parity, "opportunity": opportunity,
            "exclude": exclude or (), "standardize": not no_standardize, "test": test,
            "test_file": test_file, "format": format, "method": method, "steps": steps,
            "batch_size": batch_size, "starts": starts, "seed": seed, "tol": tol,
        }  # fmt: skip
        try:
            return _fit(wanted, out, force, None if no_report else report, as_json)
        except KeyboardInterrupt:
            return TOO_EARLY

    @app.command("predict")
    def predict_command(
        model: Annotated[Path, typer.Argument(help="What `mossp fit` wrote.", show_default=False)],
        data: Annotated[Path, typer.Argument(help="Rows to predict.", show_default=False)],
        out: Annotated[Path | None, option(help="CSV file; else standard output.")] = None,
        format: Annotated[
            str | None, option(help="csv, tsv, parquet or libsvm, where the name does not tell.")
        ] = None,
    ) -> int:
        """Predict with a fitted model.

        One line for each row of the data, with probabilities where the model has them.
        """
        return _predict(model, data, out, format)

    @app.command("show")
    def show_command(
        model: Annotated[Path, typer.Argument(help="What `mossp fit` wrote.", show_default=False)],
        as_json: Annotated[bool, option("--json", help="Print one JSON object instead.")] = False,
    ) -> int:
        """Show a fitted model."""
        return _show(model, as_json)

    @app.command("solve")
    def solve_command(
        problem: Annotated[
            str | None,
            typer.Argument(
                help="FILE.py:NAME, a mossp.Problem or a function that returns one; else the "
                "built-in example.",
                show_default=False,
            ),
        ] = None,
        method: Annotated[str, option(help="auto, or one of `mossp methods`.")] = "auto",
        steps: Annotated[
            int | None, option(help="Steps of each replica, at most; else from the data.")
        ] = None,
        batch_size: Annotated[int | None, option(help="Samples a step.")] = None,
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
        """Solve the built-in example, or your own.

        The example is sparse logistic regression on a sphere, on scikit-learn's tumour data.
        """
        settings = {
            "method": method, "steps": steps, "batch_size": batch_size, "replicas": replicas,
            "seed": seed, "tol": tol, "schedule": schedule, "starts": starts, "polish": polish,
        }  # fmt: skip
        try:
            return _solve(problem, settings, None if no_report else out, as_json)
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
        """Run the paper's experiments.

        An interrupted run goes on where it was.
        """
        try:
            return _reproduce(which, out, data_dir, quick, budget, lam)
        except KeyboardInterrupt:
            return _fail("Interrupted; run the same command again to go on.", INTERRUPTED)

    @app.command("methods")
    def methods_command() -> int:
        """List the methods."""
        return _methods()

    return app


# mossp fit, predict, show -----------------------------------------------------------------------


def _fit(wanted: dict[str, Any], out: Path, force: bool, report: Path | None, as_json: bool) -> int:
    _need("mossp fit", "sklearn")
    from mossp.app import fitting

    if out.is_dir():
        raise ValueError(f"--out must name a file, but {out} is a folder.")
    if not out.absolute().parent.is_dir():
        raise ValueError(f"There is no folder {out.parent} for {out.name}: make it first.")
    _check_folder("--report", report)
    keep_compiled_programs()
    request, began, older = fitting.Request(**wanted), time.perf_counter(), out.exists()
    good = older and not force and _is_good(out)
    with contextlib.redirect_stdout(sys.stderr), terminal.plain_warnings():
        fitted = fitting.fit(request)
        kept = good and not fitted.result.success
        if not kept:
            fitted.model.save(out)
        page = None if report is None else fitting.report(fitted, request, report)
    if as_json:
        print(json.dumps(terminal.model_object(fitted.model), allow_nan=False))
    else:
        terminal.print_result(fitted.result)
        terminal.print_model(fitted.model)
    sys.stdout.flush()
    said = sys.stderr if as_json else sys.stdout
    if kept:
        terminal.say(
            f"mossp: {out} was not replaced: the certificate of the model in it holds, and that of "
            "this one does not. Give another --out, or --force.",
            sys.stderr,
        )
    else:
        terminal.say(f"Model: {out}{' (the older one is replaced)' * older}", said)
    if page is not None:
        terminal.say(f"Report: {page}", said)
    print(f"All of it took {time.perf_counter() - began:.0f} s", file=said)
    return _code(fitted.result)


def _is_good(path: Path) -> bool:
    """Whether a file holds a model whose certificate holds."""
    from mossp.app.model import Model, ModelError

    try:
        return Model.load(path).certified is True
    except ModelError:
        return False


def _predict(path: Path, data: Path, out: Path | None, format: str | None) -> int:
    from mossp.app.model import Model
    from mossp.app.tables import read, write_predictions

    model = Model.load(path)
    if model.certified is False:
        print(f"mossp: warning: {model.doubt}", file=sys.stderr)
    with terminal.plain_warnings():
        X = model.features.matrix(read(data, format))
    columns = {"prediction": model.predict(X)}
    probabilities = model.probabilities(X)
    if probabilities is not None and model.classes is not None:
        for name, column in zip(model.classes.tolist(), probabilities.T, strict=True):
            columns[f"probability of {name}"] = column
    elif model.kind == "classifier" and len(model.coef) == 1:
        columns["margin"] = model.decision(X)
    write_predictions(out, columns)
    if out is not None:
        terminal.say(f"Predictions: {out}")
    return SUCCESS


def _show(path: Path, as_json: bool) -> int:
    from mossp.app.model import Model

    model = Model.load(path)
    if as_json:
        print(json.dumps(terminal.model_object(model), allow_nan=False))
        return SUCCESS
    for line in _described(model):
        terminal.say(line)
    terminal.print_model(model)
    return SUCCESS


def _described(model: Any) -> list[str]:
    """What a model is and where it comes from, as far as its file tells."""
    about = model.about
    target = f" of {model.target}" if model.target else ""
    regularizer = f", regulariser {about['regularizer']}" if "regularizer" in about else ""
    lines = [f"A {model.kind}{target}, loss {model.loss}{regularizer}"]
    for kind in ("equality", "inequality"):
        lines += [f"{kind}: {text}" for text in about.get(kind, ())]
    for kind in ("parity", "opportunity"):
        if about.get(kind) is not None:
            bound = f"covariance within {about[kind]:g}"
            lines.append(f"{kind} of {about.get('sensitive')}: {bound}")
    if "data" in about:
        version = f" by mossp {about['version']}" if "version" in about else ""
        created = f", {about['created']}" if "created" in about else ""
        lines.append(f"fitted to {about['data']}{version}{created}")
    if "certificate" in about:
        said = "holds" if about["certificate"]["holds"] else "does NOT hold"
        line = f"the certificate {said} at {about['certificate']['tol']:.0e}"
        numbers = (("violation", ".1e"), ("objective", ".8g"))
        known = [f"{n} {about[n]:{form}}" for n, form in numbers if about.get(n) is not None]
        status = f"{about['status']}: " if "status" in about else ""
        lines.append(f"{status}{'; '.join(filter(None, [line, ', '.join(known)]))}")
    return lines


# mossp solve ------------------------------------------------------------------------------------


def _solve(which: str | None, settings: dict[str, Any], out: Path | None, as_json: bool) -> int:
    import mossp
    from mossp import examples
    from mossp.app import scripts

    _check_folder("--out", out)
    keep_compiled_programs()
    if which is None:
        problem, start, known = examples.breast_cancer()
        names: Sequence[str] | None = known
        x0, title = start(settings["seed"]), "Breast cancer: sparse logistic regression on a sphere"
    else:
        problem, x0, names = scripts.load(which)
        title = f"The problem {which}"
    # What a package prints goes to stderr, and stdout is ours. So does the bar.
    with contextlib.redirect_stdout(sys.stderr), terminal.plain_warnings():
        result = mossp.solve(problem, x0, progress=sys.stderr.isatty(), **settings)
    if as_json:
        print(json.dumps(terminal.as_object(result, names), allow_nan=False))
    else:
        terminal.say(title)
        terminal.print_result(result)
    sys.stdout.flush()
    if out is not None:
        from mossp.report import write_page

        path = write_page(result, out, title=title, names=names)
        terminal.say(f"Report: {path}", sys.stderr if as_json else sys.stdout)
    return _code(result)


def _code(result: Any) -> int:
    if result.status.name == "INTERRUPTED":
        return INTERRUPTED
    return SUCCESS if result.success else NOT_CERTIFIED


def _check_folder(option: str, folder: Path | None) -> None:
    """Before the run, not after it."""
    if folder is None:
        return
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{option} must name a folder, but {folder} is a file.")
    _need("A report", "jinja2", "matplotlib")


def _need(what: str, *packages: str) -> None:
    """Say before the run, not after it, what is missing."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"{what} needs {' and '.join(missing)}: pip install 'mossp[cli]'")


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
        terminal.say(sentence)
    terminal.say(f"Page: {found.page}")
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
