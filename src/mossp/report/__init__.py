"""What people look at: tables, figures, and one self-contained page."""

from mossp.report.figures import plot
from mossp.report.page import Extra, write_page
from mossp.report.wording import certificate_rows, constraint_rows, explanation

__all__ = ["Extra", "certificate_rows", "constraint_rows", "explanation", "plot", "write_page"]
