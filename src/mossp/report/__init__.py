"""What people look at: tables, figures, and one self-contained page."""

from mossp.report.figures import plot
from mossp.report.page import write_page
from mossp.report.verdict import certificate_rows, explanation

__all__ = ["certificate_rows", "explanation", "plot", "write_page"]
