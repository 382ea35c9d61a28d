"""The plot of a benchmark: pages per second by workers and by size."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib
from growth import Size
from table import Row

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

Panel = Callable[[Axes], None]
LINES = {"this program": r"this, (\d) workers?", "bare loop of fetching and writing": r"bare loop, (\d) process(es)?"}
LEVELS = {"scrapy": "--", "the 60-line script": ":"}


def draw(path: Path, panels: Sequence[Panel]) -> None:
    """One PNG, its panels side by side."""
    figure, axes = pyplot.subplots(1, len(panels), figsize=(7 * len(panels), 5), squeeze=False)
    for panel, axis in zip(panels, axes[0], strict=True):
        panel(axis)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def by_workers(axes: Axes, rows: Sequence[Row]) -> None:
    """Pages per second by worker processes, of one case."""
    for label, pattern in LINES.items():
        points = sorted((int(match[1]), row.rate) for row in rows if (match := re.fullmatch(pattern, row.name)))
        axes.plot(*zip(*points, strict=True), marker="o", label=label)
    for row in rows:
        if row.name in LEVELS:
            axes.axhline(row.rate, linestyle=LEVELS[row.name], color="grey", label=f"{row.name}, {row.rate:.0f}")
    axes.set(
        title="case c: hosts with some pages each", xlabel="worker processes", ylabel="pages/s", xticks=range(1, 5)
    )
    axes.margins(y=0.1)
    axes.set_ylim(bottom=0)
    axes.legend()


def by_size(axes: Axes, sizes: Sequence[Size]) -> None:
    """Pages per second by known URLs, of one worker on small pages."""
    axes.semilogx([size.known for size in sizes], [size.rate for size in sizes], marker="o")
    axes.set(title="one worker, pages of 1 KB", xlabel="known URLs", ylabel="pages/s")
    axes.margins(y=0.1)
    axes.set_ylim(bottom=0)
