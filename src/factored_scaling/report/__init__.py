"""Figures for a talk and one self-contained HTML page. Importing this loads neither matplotlib nor jinja2."""

from __future__ import annotations

from factored_scaling.report.figures import allocation_figure, curves_figure, outcome_figure, save_figures
from factored_scaling.report.page import render, write_report
from factored_scaling.report.values import OutcomeRow, ReportInput, RunLine, run_lines

__all__ = [
    "OutcomeRow",
    "ReportInput",
    "RunLine",
    "allocation_figure",
    "curves_figure",
    "outcome_figure",
    "render",
    "run_lines",
    "save_figures",
    "write_report",
]
