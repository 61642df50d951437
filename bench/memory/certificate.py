"""The fit certificate that `ringzero plan` prints, read back.

    certificate = certificate_in(text)
    certificate.peak, certificate.categories["moments"]     # bytes of the host
"""
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Certificate:
    categories: dict[str, int]  # of the host, each at its most; what is never together is negative
    peak: int


def certificate_in(plan: str) -> Certificate:
    table = re.search(r"^fit certificate .*\n((?:.+\n)*?)budget ", plan, re.MULTILINE)
    if table is None:
        raise ValueError("`ringzero plan` printed no fit certificate")
    rows = {}
    for line in table[1].splitlines():
        found = re.match(r"(\S.*?)  +(-?\d+) ", line)
        if found is None:
            raise ValueError(f"a fit certificate has the line {line!r}")
        rows[found[1].strip()] = int(found[2])
    return Certificate({name: value for name, value in rows.items() if name != "peak"}, rows["peak"])
