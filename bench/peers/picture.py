"""A picture of one case: bars of seconds per step (with the range of all iterations) and of memory, as SVG."""
from html import escape

from peers.results import Row

_LABEL, _PANEL, _GAP, _BAR, _TOP = 300, 300, 70, 22, 56
_OURS, _OTHERS, _FLOORS, _INK = "#c2571a", "#6b7f94", "#c9ced4", "#222"


def _color(row: Row) -> str:
    if row.label.startswith("RingZero"):
        return _OURS
    return _FLOORS if "alone" in row.label else _OTHERS


def _bar(x: float, y: float, width: float, color: str, text: str, text_at: float) -> str:
    return (f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_BAR - 6}" fill="{color}"/>'
            f'<text x="{text_at + 5:.1f}" y="{y + 12:.1f}">{text}</text>')


def _whisker(begin: float, end: float, y: float) -> str:
    middle = y + (_BAR - 6) / 2
    return (f'<path d="M{begin:.1f} {middle:.1f}H{end:.1f}M{begin:.1f} {middle - 4:.1f}v8M{end:.1f} {middle - 4:.1f}v8" '
            f'stroke="{_INK}" fill="none"/>')


def draw(title: str, rows: list[Row]) -> str:
    slowest = max(row.step_max for row in rows)
    with_memory = all(row.pss_mib for row in rows)
    largest = max(row.pss_mib or 0 for row in rows)
    memory_x = _LABEL + _PANEL + _GAP
    width = (memory_x + _PANEL if with_memory else memory_x) + _GAP
    height = _TOP + _BAR * len(rows) + 14
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
             f'font-family="sans-serif" font-size="12" fill="{_INK}"><rect width="100%" height="100%" fill="#fff"/>',
             f'<text x="10" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
             f'<text x="{_LABEL}" y="44">seconds per step: median, least and greatest</text>']
    if with_memory:
        parts.append(f'<text x="{memory_x}" y="44">peak PSS of all processes, MiB</text>')
    for i, row in enumerate(rows):
        y = _TOP + i * _BAR
        parts.append(f'<text x="{_LABEL - 8}" y="{y + 12}" text-anchor="end">{escape(row.label)}</text>')
        least, median, most = (_PANEL * v / slowest for v in (row.step_min, row.step_median, row.step_max))
        parts.append(_bar(_LABEL, y, median, _color(row), f"{row.step_median:.2f}", _LABEL + most))
        parts.append(_whisker(_LABEL + least, _LABEL + most, y))
        if with_memory and row.pss_mib:
            length = _PANEL * row.pss_mib / largest
            parts.append(_bar(memory_x, y, length, _color(row), f"{row.pss_mib:.0f}", memory_x + length))
    return "\n".join([*parts, "</svg>", ""])
