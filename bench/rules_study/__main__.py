"""The command `./rz bench rules_study`: what the rules learn beside dp: plain, with a warm-up of
dp, with predictions, and with both.

Each run is kept in --results when it is done, and is not done again. So the command may be
interrupted, and goes on. Runs come in order of what they say first: the rates, then seed by seed.
"""
import itertools
import json
import math
import os
import statistics
import time
from dataclasses import dataclass

import charts
from ring_run import Options, bench_parser, main, positive, say, table, train

_HERE = os.path.dirname(os.path.abspath(__file__))
VARIANTS: dict[str, dict[str, object]] = {
    "plain": {"cyclic.warmup_updates": 0, "cyclic.predict": False},
    "warm-up": {"cyclic.predict": False},  # as many updates as a configuration has by default
    "prediction": {"cyclic.warmup_updates": 0, "cyclic.predict": True},
    "both": {"cyclic.predict": True}}
RULES: dict[str, dict[str, object]] = {
    "dp": {"cyclic.rule": "dp"},
    "cdp_v1": {"cyclic.rule": "cdp_v1"},
    "cdp_v2": {"cyclic.rule": "cdp_v2", "cyclic.slack": 1},
    "cdp_v2 strict": {"cyclic.rule": "cdp_v2", "cyclic.strict": True, "cyclic.slack": 0}}
_TUNED = (("dp", "plain"), ("cdp_v2", "both"))
# Of Student's distribution, two-sided, 95 %: by differences less one.
_STUDENT = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365}

Run = tuple[str, str, int, float, int]  # rule, variant, K, rate, seed


@dataclass(frozen=True)
class Case:
    title: str
    config: str
    unit: str                 # of `quality`; less is better
    rates: tuple[float, ...]
    settings: dict[str, object]
    all_rules: bool = False   # and all variants

    def forms(self) -> list[tuple[str, str]]:
        """Pairs of a rule and a variant, dp first."""
        rules = [rule for rule in RULES
                 if rule != "dp" and (self.all_rules or "strict" not in rule)]
        variants = VARIANTS if self.all_rules else ("plain", "both")
        return [("dp", "plain"), *itertools.product(rules, variants)]

    def quality(self, evaluation: dict) -> float:
        """Nats, or points of accuracy that are missing."""
        return evaluation["loss"] if "nats" in self.unit else 100 - 100 * evaluation["accuracy"]


_MUON = {"optimizer": {"type": "Muon", "params": {"lr": 0.02, "weight_decay": 0.1}}}
CASES = {
    "text": Case("GPT 4 × 128 on the King James Bible, AdamW", "gpt.json", "nats per byte",
                 (1e-3, 2e-3, 4e-3), {}, all_rules=True),
    "text-muon": Case("GPT 4 × 128 on the King James Bible, Muon", "gpt.json", "nats per byte",
                      (0.005, 0.01, 0.02), _MUON),
    "text-wide": Case("GPT 6 × 256 on the King James Bible, AdamW", "gpt.json", "nats per byte",
                      (5e-4, 1e-3, 2e-3), {"model.layers": 6, "model.dim": 256}),
    "images": Case("ResNet-20 on Fashion-MNIST, SGD with momentum 0.9", "fashion_mnist.json",
                   "points of accuracy", (0.02, 0.05, 0.1), {})}


class Results:
    """What was found, by case and run: the quality at each evaluation. One line of JSON a run."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: dict[tuple[str, Run], list[float]] = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for line in map(json.loads, file):
                    case, *run = line["run"]
                    self._found[case, tuple(run)] = line["quality"]

    def of(self, case: str, run: Run) -> float | None:
        """At the end; None: not done. Infinite: it diverged."""
        found = self._found.get((case, run))
        return found and (found[-1] if all(map(math.isfinite, found)) else math.inf)

    def keep(self, case: str, run: Run, quality: list[float]) -> None:
        self._found[case, run] = quality
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"run": [case, *run], "quality": quality}) + "\n")


def _do(options: Options, name: str, run: Run) -> list[float]:
    rule, variant, laps, rate, seed = run
    case = CASES[name]
    summary = train(options, {
        **case.settings, **RULES[rule], **(VARIANTS[variant] if rule != "dp" else {}), "seed": seed,
        "gradient_accumulation_steps": laps, "optimizer.params.lr": rate},
        config=os.path.join(_HERE, case.config))
    return [case.quality(each) if isinstance(each["loss"], float) else math.inf
            for each in summary["evaluations"]]


def _tuning(case: Case, laps: int) -> list[Run]:
    return [(*form, laps, rate, 1) for rate in case.rates for form in _TUNED]


def _best_rate(results: Results, name: str, rule: str, laps: int) -> float | None:
    """The rate of dp, or of cyclic rules; None: not all rates are done."""
    form = _TUNED[0 if rule == "dp" else 1]
    found = [(results.of(name, (*form, laps, rate, 1)), rate) for rate in CASES[name].rates]
    if any(quality is None for quality, _ in found):
        return None
    return min(found)[1]


def _missing(options: Options, results: Results) -> list[tuple[str, Run]]:
    """Those that can be done now, most telling first."""
    found = []
    for laps, name in itertools.product(options.laps, options.cases):
        tuning = [run for run in _tuning(CASES[name], laps) if results.of(name, run) is None]
        found += [(0, name, run) for run in tuning]
        for seed, (rule, variant) in itertools.product(range(1, options.seeds + 1),
                                                       CASES[name].forms()):
            rate = None if tuning else _best_rate(results, name, rule, laps)
            run = (rule, variant, laps, rate, seed)
            if rate is not None and results.of(name, run) is None:
                found.append((seed, name, run))
    return [(name, run) for _, name, run in sorted(found, key=lambda each: each[0])]


def _differences(options: Options, results: Results, name: str, form: tuple[str, str],
                 laps: int) -> list[float]:
    """To dp of the same seed, by seed."""
    found = []
    for seed in range(1, options.seeds + 1):
        pair = [results.of(name, (*each, laps, _best_rate(results, name, each[0], laps), seed))
                for each in (form, ("dp", "plain"))]
        if None not in pair:
            found.append(pair[0] - pair[1])
    return found


def interval(differences: list[float]) -> tuple[float, float] | None:
    """The mean's 95 % interval; None: fewer than two, or one run diverged."""
    if len(differences) < 2 or not all(map(math.isfinite, differences)):
        return None
    middle = statistics.mean(differences)
    half = (_STUDENT[min(len(differences) - 1, max(_STUDENT))] * statistics.stdev(differences)
            / math.sqrt(len(differences)))
    return middle - half, middle + half


def _section(options: Options, results: Results, name: str, laps: int) -> list[str]:
    case, rows, bars = CASES[name], [], []
    rates = {rule: _best_rate(results, name, rule, laps) for rule in ("dp", "cdp_v2")}
    if None in rates.values():
        return []
    reached = [results.of(name, ("dp", "plain", laps, rates["dp"], seed))
               for seed in range(1, options.seeds + 1)]
    for form in case.forms()[1:]:
        differences = _differences(options, results, name, form, laps)
        if not differences:
            continue
        span, mean = interval(differences), statistics.mean(differences)
        shown = f"{span[0]:+.3f} to {span[1]:+.3f}" if span else "-"
        rows.append([", ".join(form), f"{mean:+.3f}", shown,
                     ", ".join(f"{each:+.3f}" for each in differences)])
        if math.isfinite(mean):
            bars.append(charts.Bar(", ".join(form), {"mean": max(mean, 0.0)}, f"{mean:+.3f}", span))
    if not rows:
        return []
    picture = f"rules_study-{name}-{laps}.svg"
    charts.write(os.path.join(options.out, picture), f"{case.title}, K = {laps}: worse than dp by",
                 [charts.Panel(case.unit, case.unit, bars=bars)])
    done = [each for each in reached if each is not None]
    return ["", f"## {case.title}, K = {laps}", "",
            f"dp reaches {statistics.mean(done):.3f} ({len(done)} seeds; rate {rates['dp']:g}, "
            f"cyclic rules {rates['cdp_v2']:g}). Worse than dp of the same seed by, in "
            f"{case.unit}:", "",
            *table(["rule", "mean", "95 % interval", "by seed"], rows), "",
            f"![worse than dp by]({picture})"]


def _bench(options: Options, command: str) -> list[str]:
    results, end = Results(options.results), time.monotonic() + 3600 * options.hours
    while (missing := _missing(options, results)) and time.monotonic() < end:
        name, run = missing[0]
        quality = _do(options, name, run)
        results.keep(name, run, quality)
        say(f"{name}, {', '.join(map(str, run))}: {quality[-1]:.4f} ({len(missing) - 1} left)")
    page = ["# What the rules learn", "",
            f"`{command}` made this from `{os.path.basename(options.results)}`: four workers, a "
            "warm-up of dp of 30 % of the run or 300 updates, predictions with SGD's momentum or "
            "1. Rates are the best of three of dp, and of cdp_v2 with both. "
            + (f"{len(missing)} runs are still to be done." if missing else "All runs are done.")]
    for name, laps in itertools.product(options.cases, options.laps):
        page += _section(options, results, name, laps)
    return page


if __name__ == "__main__":
    PARSER = bench_parser("rules_study", __doc__, seeds=3)
    PARSER.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="[all]")
    PARSER.add_argument("--laps", nargs="+", type=positive, default=[1, 4], metavar="K",
                        help="[1 4]")
    PARSER.add_argument("--hours", type=float, default=8, metavar="H", help="at most [8]")
    _RESULTS = os.path.join(_HERE, "..", "..", "docs", "results", "rules_study.jsonl")
    PARSER.add_argument("--results", default=os.path.normpath(_RESULTS), metavar="FILE",
                        help="all runs so far [docs/results/rules_study.jsonl]")
    main(PARSER, _bench)
