"""The arguments and options of the commands, each written once.

A command names its parameter after the option and takes the type from here; so does
`fitting.Request`, whose fields are the options of `mossp fit`.
"""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

# Files that are read ----------------------------------------------------------------------------

TrainFile = Annotated[
    Path, Argument(help="CSV, TSV, Parquet, .npy or LIBSVM.", metavar="FILE", show_default=False)
]
TestFile = Annotated[Path | None, Option(help="Rows for the test, instead.")]
DataFile = Annotated[Path, Argument(help="Rows to predict.", show_default=False)]
ModelFile = Annotated[Path, Argument(help="What `mossp fit` wrote.", show_default=False)]
Format = Annotated[
    str | None, Option(help="csv, tsv, parquet, npy or libsvm, where the name does not tell.")
]
ProblemName = Annotated[
    str | None,
    Argument(
        help="FILE.py:NAME, a mossp.Problem or a function that returns one; else the "
        "built-in example.",
        show_default=False,
    ),
]
DataFolder = Annotated[
    Path | None,
    Option(help="Folder of a9a, phishing and australian; else MOSSP_DATA, or downloaded."),
]

# What a model is --------------------------------------------------------------------------------

Target = Annotated[
    str | None,
    Option(
        help="The column to predict; for a .npy file perhaps another one, y.npy; LIBSVM has labels."
    ),
]
Loss = Annotated[
    str | None,
    Option(
        help="logistic, huberized-hinge, squared, huber:1, quantile:0.5, poisson, gamma, "
        "tweedie:1.5; else logistic for two classes or text, squared for numbers."
    ),
]
Objective = Annotated[
    str | None,
    Option(
        help="pu: the larger label marks rows known to be positive, the other ones are unlabelled; "
        "partial-auc: scores for the first part of the ROC curve. Else the loss decides."
    ),
]
Prior = Annotated[
    float | None,
    Option(help="With pu, the share of positives among all rows; else it is estimated."),
]
MaxFpr = Annotated[
    float | None, Option(help="With partial-auc, the largest false positive rate; else 0.1.")
]
MinFpr = Annotated[
    float | None, Option(help="With partial-auc, the smallest false positive rate; else 0.")
]
Regularizer = Annotated[
    str | None,
    Option(
        help="l1, ridge, elastic-net, l1-l2, mcp, scad, ...:strength, as in l1-l2:0.01; without a "
        "strength, 5-fold cross-validation chooses it. Left out, l1, and with --objective ridge."
    ),
]
MaxFeatures = Annotated[
    int | None,
    Option(help="At most so many nonzero coefficients, a hard limit in place of a regulariser."),
]
Choose = Annotated[
    str,
    Option(
        help="Which strength is chosen: best, of the highest score; 1se, the largest within one "
        "standard error of it; bic, of the lowest information criterion, without folds."
    ),
]
Scoring = Annotated[
    str | None,
    Option(
        help="By which the strength is chosen: log_loss, accuracy, balanced_accuracy, roc_auc, "
        "average_precision, or any of scikit-learn's; else the loss of the model."
    ),
]
Threshold = Annotated[
    str | None,
    Option(
        help="Of two classes, from which probability on a row is of the second: a number, or by "
        "the training rows balanced, f1, recall>=0.8, precision>=0.9 or fpr<=0.05."
    ),
]
Offset = Annotated[
    str | None,
    Option(
        help='A column that is added to the score and is no feature; "log(days)" for an exposure '
        "of days."
    ),
]
Equality = Annotated[
    list[str] | None,
    Option(help='As in "sum(x**2) = 1", x the coefficients; may be repeated.'),
]
Inequality = Annotated[
    list[str] | None,
    Option(help='As in "age <= 0.5" or "norm(x[0:3]) <= 1"; may be repeated.'),
]
Nonnegative = Annotated[bool, Option("--nonnegative", help="Coefficients >= 0.")]
NoIntercept = Annotated[bool, Option("--no-intercept", help="No intercept.")]
Balanced = Annotated[bool, Option("--balanced", help="Classes count alike.")]
Sensitive = Annotated[str | None, Option(help="A protected attribute, which is then no feature.")]
Rate = Annotated[
    list[str] | None,
    Option(
        help='A bound on a true rate of the training rows, as in "fpr <= 0.05" or "tpr[sex=F] >= '
        '0.8", groups by any column of the file; may be repeated.'
    ),
]
RatesMargin = Annotated[
    float | None,
    Option(help="Confidence, such as 0.95, with which each rate is to hold on new rows, too."),
]
Parity = Annotated[float | None, Option(help="Bound on its covariance with the margin.")]
Opportunity = Annotated[float | None, Option(help="The same among the rows of the positive class.")]

# What becomes of the rows -----------------------------------------------------------------------

Missing = Annotated[
    str,
    Option(
        help="What becomes of missing values: refuse; impute, by the median or the most frequent "
        "level with an indicator; drop, leave such rows out."
    ),
]
Dates = Annotated[
    str | None, Option(help="dmy or mdy, where dates such as 5/6/2024 could be both.")
]
Cyclic = Annotated[
    list[str] | None,
    Option(
        help='A column of dates whose place in a cycle is a feature, too, as in "joined:year" or '
        '"joined:year,week,day"; may be repeated.'
    ),
]
Id = Annotated[
    list[str] | None,
    Option(
        help="A column that tells rows apart: no feature, but handed through by `mossp predict`; "
        "may be repeated."
    ),
]
PredictId = Annotated[
    list[str] | None,
    Option("--id", help="A column to hand through; else that of the fit. May be repeated."),
]
Units = Annotated[
    str,
    Option(
        help="Of constraints: standardised, for the coefficients of standardised columns, or data, "
        "for those in the data's own units."
    ),
]
Inference = Annotated[
    bool,
    Option("--inference", help="Standard errors of the coefficients that are not zero."),
]
Exclude = Annotated[list[str] | None, Option(help="A column to leave out; may be repeated.")]
NoStandardize = Annotated[bool, Option("--no-standardize", help="Take the columns as they are.")]
Stream = Annotated[
    bool | None,
    Option(
        "--stream/--no-stream",
        help="Read the file in blocks, again in every pass, or whole into memory; else by its "
        "size: in blocks where its numbers take more than a sixth of the memory available.",
    ),
]
Checkpoint = Annotated[
    Path | None,
    Option(
        help="Of a file that is read in blocks: where the run is saved every ten seconds; the same "
        "command goes on from there."
    ),
]
TestShare = Annotated[float, Option(help="Share of the rows that is kept for a test.")]

# How it is solved -------------------------------------------------------------------------------

Method = Annotated[str, Option(help="auto, or one of `mossp methods`.")]
Steps = Annotated[int | None, Option(help="Steps, at most.")]
ReplicaSteps = Annotated[
    int | None, Option(help="Steps of each replica, at most; else from the data.")
]
BatchSize = Annotated[int | None, Option(help="Samples a step; else from the data.")]
Replicas = Annotated[int, Option(help="Independent runs; the best is returned.")]
Starts = Annotated[int, Option(help="Different starts; the best end is kept.")]
Polish = Annotated[bool | None, Option(help="End with Newton's method, or not; auto decides.")]
Seed = Annotated[int, Option(help="Decides the start and the samples drawn.")]
SplitSeed = Annotated[int, Option(help="Decides the split and the samples drawn.")]
Tol = Annotated[
    float | None,
    Option(help="What the certificate must meet: 1e-10 if the method is exact, else 0.01."),
]
Schedule = Annotated[str, Option(help="How parameters follow the step.")]

# What is written --------------------------------------------------------------------------------

ModelOut = Annotated[Path, Option(help="File of the model.")]
PredictionsOut = Annotated[Path | None, Option(help="CSV file; else standard output.")]
ReproductionReport = Annotated[
    Path, Option("--report", "--out", help="Folder of the page, tables and figures.")
]
ReportFolder = Annotated[Path, Option(help="Folder of the report.")]
SolveReport = Annotated[Path, Option("--report", "--out", help="Folder of the report.")]
NoReport = Annotated[bool, Option("--no-report", help="Write no report.")]
Force = Annotated[
    bool, Option("--force", help="Replace a good model even by one whose certificate fails.")
]
ExportFormat = Annotated[
    str | None, Option(help="json, sql or onnx; else by the name of the file, or json.")
]
ExportOut = Annotated[Path | None, Option(help="File; else standard output.")]
TableName = Annotated[str, Option(help="The table that a query reads.")]
AsJson = Annotated[bool, Option("--json", help="Print one JSON object instead.")]

# The paper's experiments ------------------------------------------------------------------------

Experiment = Annotated[str, Argument(help="sphere, quadratics, rates or all.", show_default=False)]
Quick = Annotated[bool, Option("--quick", help="Small budgets on generated data, within a minute.")]
Budget = Annotated[
    str, Option(help="gradients: as many for each; seconds: the paper's equal time.")
]
Lams = Annotated[
    list[float] | None,
    Option(help="Weight of the regulariser on the sphere; may be repeated. 0.01."),
]
