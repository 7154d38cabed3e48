"""The course's figures. Each function returns a `Picture`: a figure, and one line of text that says the same.

The room draws and does not compute: numbers come from `compare`, `evidence` and `numerics`.
"""

from course_lib.plots.diagrams import divergence_sources, request_path
from course_lib.plots.drift import drift_and_margin, fork_scatter, ladder
from course_lib.plots.numbers import number_line, row_error
from course_lib.plots.rates import bars_with_intervals, metric_matrix, sweep
from course_lib.plots.style import COLOURS, Picture
from course_lib.plots.tokens import step_sizes, token_strip, token_strips

__all__ = [
    "COLOURS", "Picture", "bars_with_intervals", "divergence_sources", "drift_and_margin", "fork_scatter", "ladder",
    "metric_matrix", "number_line", "request_path", "row_error", "step_sizes", "sweep", "token_strip", "token_strips",
]  # fmt: skip
