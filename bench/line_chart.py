"""Line charts as SVG: several panels side by side, one legend."""
from dataclasses import dataclass, field
from html import escape

COLORS = ["#1f5a94", "#c2571a", "#2c8a57", "#8a3d8f", "#7a6a1e", "#555"]
_LEFT, _WIDTH, _HEIGHT, _TOP, _BOTTOM, _GAP = 56, 420, 260, 48, 44, 40


@dataclass
class Series:
    label: str  # the same label gives the same colour, and one entry in the legend
    points: list[tuple[float, float]]
    thin: bool = False


@dataclass
class Panel:
    title: str
    x_title: str
    series: list[Series]
    y_range: tuple[float, float] | None = None
    marks: list[tuple[str, float]] = field(default_factory=list)  # horizontal dashed lines: text, y


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers in [low, high]."""
    raw = (high - low) / 5 or 1
    power = 10.0 ** (len(f"{raw:.0f}") - 1) if raw >= 1 else 1.0
    while power > raw:
        power /= 10
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    first = -(-low // step) * step
    return [first + i * step for i in range(12) if first + i * step <= high + step * 1e-6]


def _panel(panel: Panel, left: float, color_of: dict[str, str]) -> list[str]:
    points = [point for series in panel.series for point in series.points]
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    y_low, y_high = panel.y_range or (min(y for _, y in points), max(y for _, y in points))

    def place(x: float, y: float) -> str:
        return (f"{left + (x - x_low) / (x_high - x_low or 1) * _WIDTH:.1f} "
                f"{_TOP + (1 - (min(max(y, y_low), y_high) - y_low) / (y_high - y_low or 1)) * _HEIGHT:.1f}")

    parts = [f'<text x="{left}" y="{_TOP - 12}" font-weight="bold">{escape(panel.title)}</text>',
             f'<rect x="{left}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#999"/>',
             f'<text x="{left + _WIDTH / 2}" y="{_TOP + _HEIGHT + 34}" text-anchor="middle">{escape(panel.x_title)}</text>']
    for y in _ticks(y_low, y_high):
        height = place(x_low, y).split()[1]
        parts.append(f'<path d="M{left} {height}h{_WIDTH}" stroke="#e3e3e3"/>'
                     f'<text x="{left - 6}" y="{float(height) + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in _ticks(x_low, x_high):
        parts.append(f'<text x="{place(x, y_low).split()[0]}" y="{_TOP + _HEIGHT + 16}" text-anchor="middle">{x:g}</text>')
    for text, y in panel.marks:
        height = place(x_low, y).split()[1]
        parts.append(f'<path d="M{left} {height}h{_WIDTH}" stroke="#222" stroke-dasharray="5 4"/>'
                     f'<text x="{left + _WIDTH - 4}" y="{float(height) - 5:.1f}" text-anchor="end">{escape(text)}</text>')
    for series in panel.series:
        path = "L".join(place(x, y) for x, y in series.points)
        parts.append(f'<path d="M{path}" fill="none" stroke="{color_of[series.label]}" '
                     f'stroke-width="{0.8 if series.thin else 1.8}"/>')
    return parts


def draw(title: str, panels: list[Panel]) -> str:
    labels = list(dict.fromkeys(series.label for panel in panels for series in panel.series))
    color_of = {label: COLORS[i % len(COLORS)] for i, label in enumerate(labels)}
    width = len(panels) * (_LEFT + _WIDTH + _GAP)
    height = _TOP + _HEIGHT + _BOTTOM + 24
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
             'font-family="sans-serif" font-size="12" fill="#222"><rect width="100%" height="100%" fill="#fff"/>',
             f'<text x="10" y="20" font-size="14" font-weight="bold">{escape(title)}</text>']
    for i, panel in enumerate(panels):
        parts += _panel(panel, _LEFT + i * (_LEFT + _WIDTH + _GAP), color_of)
    x = _LEFT
    for label in labels:
        parts.append(f'<path d="M{x} {height - 12}h22" stroke="{color_of[label]}" stroke-width="3"/>'
                     f'<text x="{x + 28}" y="{height - 8}">{escape(label)}</text>')
        x += 50 + 7 * len(label)
    return "\n".join([*parts, "</svg>", ""])
