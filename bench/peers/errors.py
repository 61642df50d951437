"""The one exception with which a bench ends: its text is for a person and names who, what was wanted and what was found."""


class BenchError(Exception):
    pass
