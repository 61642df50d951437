"""Pictures of benchmarks as SVG, by matplotlib: the same numbers make the same file.

    growth = Panel("growth, %", "ms", [Series("dp", [(0, 0), (20, 3)])])
    write("waits.svg", "What latency costs", [growth])

A process of its own draws, by a Python that has Debian's python3-matplotlib: PyTorch's Python has
another numpy.
"""
import json
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, field

PYTHONS = ("python3", "/usr/bin/python3")  # the first that has matplotlib draws


@dataclass
class Series:
    label: str  # the same label gives the same colour, and one entry in the legend
    points: list[tuple[float, float]]
    thin: bool = False


@dataclass
class Bar:
    label: str
    parts: dict[str, float]  # one behind the other; names are as labels of series
    text: str                # at its end
    span: tuple[float, float] | None = None  # least and most, as a thin line
    mark: float | None = None


@dataclass
class Panel:
    title: str
    x_title: str
    series: list[Series] = field(default_factory=list)
    y_range: tuple[float, float] | None = None
    marks: list[tuple[str, float]] = field(default_factory=list)  # dashed lines: text, y
    bars: list[Bar] = field(default_factory=list)  # in place of series, from top to bottom


def write(path: str, title: str, panels: list[Panel]) -> None:
    """Panels side by side, one legend. Only a warning where no Python has matplotlib."""
    text = json.dumps({"title": title, "panels": [asdict(panel) for panel in panels]})
    reason = "no python3"
    for python in filter(shutil.which, PYTHONS):
        done = subprocess.run([python, "-I", __file__, path], input=text, capture_output=True,
                              text=True, check=False)
        if done.returncode == 0:
            return
        reason = "".join(done.stderr.strip().splitlines()[-1:])
    print(f"warning: no picture {path}: {reason} (Debian: python3-matplotlib)", file=sys.stderr)


def _lines(place, panel: dict, colors: dict[str, str]) -> None:
    for series in panel["series"]:
        width = 0.8 if series["thin"] else 1.8
        place.plot(*zip(*series["points"]), color=colors[series["label"]], linewidth=width)
    if panel["y_range"]:
        place.set_ylim(*panel["y_range"])
    for text, y in panel["marks"]:
        place.axhline(y, color="#222", linestyle="--", linewidth=1)
        where = ("axes fraction", "data")
        place.annotate(text, (1, y), (-4, 3), where, "offset points", ha="right")


def _bars(place, bars: list[dict], colors: dict[str, str]) -> None:
    for row, bar in enumerate(bars):
        at = 0.0
        for name, length in bar["parts"].items():
            place.barh(row, length, left=at, color=colors[name], height=0.7)
            at += length
        if bar["span"]:
            low, high = bar["span"]
            middle, half = (low + high) / 2, (high - low) / 2
            place.errorbar(middle, row, xerr=half, color="#222", capsize=3, linewidth=1)
        if bar["mark"] is not None:
            place.plot([bar["mark"]] * 2, [row - 0.4, row + 0.4], color="#000", linewidth=2.5)
        end = max(at, bar["mark"] or 0, *(bar["span"] or [0]))
        place.annotate(bar["text"], (end, row), (5, 0), textcoords="offset points", va="center")
    place.set_yticks(range(len(bars)), [bar["label"] for bar in bars])
    place.invert_yaxis()
    place.margins(x=0.18)


def _draw(path: str, title: str, panels: list[dict]) -> None:
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams.update({"svg.hashsalt": "ringzero", "svg.fonttype": "none", "axes.grid": True,
                            "axes.axisbelow": True, "grid.color": "#e3e3e3", "font.size": 9})
    labels = [series["label"] for panel in panels for series in panel["series"]]
    labels += [name for panel in panels for bar in panel["bars"] for name in bar["parts"]]
    colors = {label: f"C{i}" for i, label in enumerate(dict.fromkeys(labels))}
    height = max(3.4, *(0.25 * len(panel["bars"]) + 0.8 for panel in panels))
    figure, places = pyplot.subplots(1, len(panels), squeeze=False, layout="constrained",
                                     figsize=(5 * len(panels), height))
    figure.suptitle(title, fontweight="bold")
    for place, panel in zip(places[0], panels):
        place.set_title(panel["title"])
        place.set_xlabel(panel["x_title"])
        _lines(place, panel, colors)
        if panel["bars"]:
            _bars(place, panel["bars"], colors)
    handles = [matplotlib.lines.Line2D([], [], color=each, linewidth=3) for each in colors.values()]
    figure.legend(handles, list(colors), loc="upper center", bbox_to_anchor=(0.5, 0), ncol=6,
                  frameon=False)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    _draw(sys.argv[1], **json.load(sys.stdin))
