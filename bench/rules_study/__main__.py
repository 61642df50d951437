"""The command `./rz bench rules_study`: what the rules learn beside dp: plain, with a warm-up of
dp, with predictions, and with both.

Each run is kept in --results when it is done, and is not done again. So the command may be
interrupted, and goes on. Runs come in order of what they say first: the rates, then seed by seed.
The page and --table are made from all runs so far. The table is what `"rule": "auto"` goes by.
"""
import itertools
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass

import charts
from ring_run import (Options, bench_parser, dump_initial, interval, main, positive, read_config,
                      say, table, train, train_with_metrics, write_page)

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.normpath(os.path.join(_HERE, "..", ".."))
_WORKERS = 4
_WARMUP = 300  # updates, which these configurations have by default
_FACTORS = (0.5, 0.8, 1.2, 1.5)  # of predictions, besides 1
VARIANTS: dict[str, dict[str, object]] = {
    "plain": {"cyclic.warmup_updates": 0, "cyclic.predict": False},
    "warm-up": {"cyclic.warmup_updates": _WARMUP, "cyclic.predict": False},
    "prediction": {"cyclic.warmup_updates": 0, "cyclic.predict": True},
    "both": {"cyclic.warmup_updates": _WARMUP, "cyclic.predict": True},
    **{f"both, factor {factor}": {"cyclic.warmup_updates": _WARMUP, "cyclic.predict.factor": factor}
       for factor in _FACTORS}}
RULES: dict[str, dict[str, object]] = {
    "dp": {"cyclic.rule": "dp"},
    "cdp_v1": {"cyclic.rule": "cdp_v1"},
    "cdp_v2": {"cyclic.rule": "cdp_v2", "cyclic.slack": 1},
    "cdp_v2 strict": {"cyclic.rule": "cdp_v2", "cyclic.strict": True, "cyclic.slack": 0},
    "cdp_v2 slack 0": {"cyclic.rule": "cdp_v2", "cyclic.slack": 0}}
DP, SHORTER, NESTEROV = ("dp", "plain"), ("dp", "shorter"), ("dp", "Nesterov")
NADAM = ("dp", "NAdam")  # which RingZero has not: in a loop of PyTorch
_SHORT = 0.8  # of the updates: says how much quality the last updates are worth
_TUNED = (DP, ("cdp_v2", "both"))
_TRIES = (*(("cdp_v2", f"both, factor {factor}") for factor in _FACTORS),
          ("cdp_v2 slack 0", "both"))
_MOST_SEEDS = 5  # of dp and of the rules with both, which README speaks of
_SEEDS = 3       # of everything else

Form = tuple[str, str]                   # rule and variant
Run = tuple[str, str, int, float, int]   # rule, variant, K, rate, seed


@dataclass(frozen=True)
class Case:
    title: str
    config: str
    unit: str                 # of `quality`; less is better
    rates: tuple[float, ...]
    settings: dict[str, object]
    family: str               # as the table names the model
    optimizer: str
    micro_batch: int
    updates: int
    laps: tuple[int, ...] = (1, 2)
    in_full: bool = False     # all rules in all variants

    def forms(self, laps: int) -> list[Form]:
        """What stands beside dp."""
        rules = ["cdp_v1", "cdp_v2"]
        if not self.in_full:
            beside = [NESTEROV] if self.optimizer == "SGD" else []
            return [*beside, *itertools.product(rules, ("plain", "both"))]
        full = itertools.product([*rules, "cdp_v2 strict"],
                                 ("plain", "warm-up", "prediction", "both"))
        return [NADAM, *full, *(_TRIES if laps == 1 else ())]

    def quality(self, evaluation: dict) -> float:
        """Nats, or points of accuracy that are missing."""
        return evaluation["loss"] if "nats" in self.unit else 100 - 100 * evaluation["accuracy"]

    def seeds(self, form: Form, most: int) -> range:
        wanted = _MOST_SEEDS if form == DP or form[1].startswith("both") else _SEEDS
        return range(1, min(wanted, most) + 1)


_BIBLE, _NATS = "on the King James Bible", "nats per byte"
_MUON = {"optimizer": {"type": "Muon", "params": {"lr": 0.02, "weight_decay": 0.1}}}
CASES = {
    "text": Case(f"GPT 4 × 128 {_BIBLE}, AdamW", "gpt.json", _NATS, (1e-3, 2e-3, 4e-3), {},
                 "gpt", "AdamW", 1, 1000, laps=(1, 4), in_full=True),
    "text-muon": Case(f"GPT 4 × 128 {_BIBLE}, Muon", "gpt.json", _NATS, (0.005, 0.01, 0.02),
                      _MUON, "gpt", "Muon", 1, 1000),
    "text-wide": Case(f"GPT 6 × 256 {_BIBLE}, AdamW", "gpt.json", _NATS, (5e-4, 1e-3, 2e-3),
                      {"model.layers": 6, "model.dim": 256}, "gpt", "AdamW", 1, 1000),
    "images": Case("ResNet-20 on Fashion-MNIST, SGD with momentum 0.9", "fashion_mnist.json",
                   "points of accuracy", (0.02, 0.05, 0.1), {}, "resnet", "SGD", 32, 1407)}


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

    def missing(self, name: str, laps: int, most: int) -> Iterator[tuple[int, Run]]:
        """The runs that can be done now, each with its turn."""
        case = CASES[name]
        tuning = [(*form, laps, rate, 1) for rate in case.rates for form in _TUNED]
        wanted = [(0, run) for run in tuning]
        if all(self.of(name, run) is not None for run in tuning):
            wanted += [(seed, (*form, laps, self.best_rate(name, form[0], laps), seed))
                       for form in (DP, SHORTER, *case.forms(laps))
                       for seed in case.seeds(form, most)]
        return (each for each in wanted if self.of(name, each[1]) is None)

    def best_rate(self, name: str, rule: str, laps: int) -> float | None:
        """The rate of dp, or of cyclic rules; None: not all rates are done."""
        form = _TUNED[0 if rule == "dp" else 1]
        found = [(self.of(name, (*form, laps, rate, 1)), rate) for rate in CASES[name].rates]
        if any(quality is None for quality, _ in found):
            return None
        return min(found)[1]

    def differences(self, name: str, form: Form, laps: int) -> list[float]:
        """To dp of the same seed, by seed."""
        found = []
        for seed in CASES[name].seeds(form, _MOST_SEEDS):
            pair = [self.of(name, (*each, laps, self.best_rate(name, each[0], laps), seed))
                    for each in (form, DP)]
            if None not in pair:
                found.append(pair[0] - pair[1])
        return found


def table_row(results: Results, name: str, form: Form, laps: int) -> dict[str, object] | None:
    """A row of data/rules.json; None: not enough runs. How many times dp's updates a rule needs
    for dp's quality follows from the difference, and from what the last fifth of dp's updates are
    worth in the mean: quality grows with the logarithm of the updates. The interval is that of the
    difference alone."""
    case, (rule, variant) = CASES[name], form
    differences = results.differences(name, form, laps)
    span, worth = interval(differences), interval(results.differences(name, SHORTER, laps))
    if span is None or worth is None or worth[0] <= 0:
        return None  # what the last updates are worth is not known either
    per_log = statistics.mean(worth) / -math.log(_SHORT)
    low, mean, high = (round(math.exp(min(max(each / per_log, -6), 6)), 3)  # 6: 400 times, or more
                       for each in (span[0], statistics.mean(differences), span[1]))
    settings = VARIANTS[variant]
    return {"family": case.family, "optimizer": case.optimizer, "rule": rule.split()[0],
            "strict": "strict" in rule, "workers": _WORKERS, "laps": laps,
            "batch": _WORKERS * laps * case.micro_batch,
            "warmup_updates": settings["cyclic.warmup_updates"],
            "predict": settings["cyclic.predict"], "updates": mean, "least": low, "most": high,
            "seeds": len(differences), "command": f"./rz bench rules_study --cases {name}"}


def _nadam(options: Options, file: str, settings: dict[str, object]) -> list[float]:
    """With dp's initial parameters, batches and rates. What the rates are, dp's metrics tell."""
    import torch  # here: all else goes without

    from curve import plain

    torch.set_num_threads(1)
    _, scalars = train_with_metrics(options, settings, file)
    kept = ("seed", "gradient_accumulation_steps")
    config = read_config(file) | {key: settings[key] for key in kept}
    with tempfile.TemporaryDirectory() as folder:
        initial = os.path.join(folder, "initial.safetensors")
        dump_initial(options, file, settings["seed"], initial)
        _, held_out = plain.train(config, initial,
                                  [each["Train/Samples/lr"] for each in scalars],
                                  config["evaluation"]["every"], torch.optim.NAdam,
                                  decoupled_weight_decay=True)
    return [loss for _, loss in held_out]


def _do(options: Options, name: str, run: Run) -> list[float]:
    rule, variant, laps, rate, seed = run
    case = CASES[name]
    settings = {**case.settings, **RULES[rule], "seed": seed, "iterations": case.updates,
                "gradient_accumulation_steps": laps, "optimizer.params.lr": rate}
    if rule != "dp":
        settings |= VARIANTS[variant]
    if (rule, variant) == NADAM:
        return _nadam(options, os.path.join(_HERE, case.config), settings)
    if (rule, variant) == NESTEROV:
        settings["optimizer.params.nesterov"] = True
    if (rule, variant) == SHORTER:
        settings["iterations"] = settings["evaluation.every"] = round(_SHORT * case.updates)
    summary = train(options, settings, config=os.path.join(_HERE, case.config))
    return [case.quality(each) if isinstance(each["loss"], float) else math.inf
            for each in summary["evaluations"]]


def _section(options: Options, results: Results, name: str, laps: int) -> list[str]:
    case, rows, bars = CASES[name], [], []
    rates = {rule: results.best_rate(name, rule, laps) for rule in ("dp", "cdp_v2")}
    if None in rates.values():
        return []
    reached = [results.of(name, (*DP, laps, rates["dp"], seed))
               for seed in case.seeds(DP, _MOST_SEEDS)]
    for form in (SHORTER, *case.forms(laps)):
        differences = results.differences(name, form, laps)
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
    mean_of_dp = statistics.mean(done)
    reaches = (f"dp's held-out accuracy is {100 - mean_of_dp:.2f} %" if "accuracy" in case.unit
               else f"dp reaches {mean_of_dp:.3f} {case.unit}")
    return ["", f"## {case.title}, K = {laps}", "",
            f"{reaches} (seeds: {len(done)}; rate {rates['dp']:g}, cyclic rules "
            f"{rates['cdp_v2']:g}). Worse than dp of the same seed by, in {case.unit}:", "",
            *table(["rule", "mean", "95 % interval", "by seed"], rows), "",
            f"![worse than dp by]({picture})"]


def _write_table(options: Options, results: Results) -> None:
    """One row a line."""
    rows = [row for name, case in CASES.items() for laps in case.laps for form in case.forms(laps)
            if form[0] != "dp" and form not in _TRIES
            and (row := table_row(results, name, form, laps)) is not None]
    write_page(["[", ",\n".join(json.dumps(row) for row in rows), "]"],
               options.table or os.path.join(options.out, "rules.json"))


def _bench(options: Options, command: str) -> list[str]:
    results, end = Results(options.results), time.monotonic() + 3600 * options.hours
    pairs = [(name, laps) for name in options.cases for laps in options.laps or CASES[name].laps]

    def missing() -> list[tuple[int, str, Run]]:
        found = [(turn, name, run) for name, laps in pairs
                 for turn, run in results.missing(name, laps, options.seeds)]
        return sorted(found, key=lambda each: each[0])

    while (left := missing()) and time.monotonic() < end:
        _, name, run = left[0]
        quality = _do(options, name, run)
        results.keep(name, run, quality)
        say(f"{name}, {', '.join(map(str, run))}: {quality[-1]:.4f} ({len(left) - 1} left)")
    page = ["# What the rules learn", "",
            f"`{command}` made this from `{os.path.basename(options.results)}`: {_WORKERS} "
            f"workers; a warm-up of {_WARMUP} updates of dp; predictions with SGD's momentum or 1, unless a factor is named. "
            "Rates are the best of three of dp, and of cdp_v2 with both. \"Shorter\" is dp with "
            f"{_SHORT:g} of the updates. "
            + ("Some runs are still to be done." if left else "All runs are done.")]
    with open(os.path.join(_HERE, "findings.md"), encoding="utf-8") as file:
        page += ["", *file.read().splitlines()]
    for name, case in CASES.items():
        for laps in sorted({*case.laps, *(options.laps or ())}):
            page += _section(options, results, name, laps)
    _write_table(options, results)
    return page


if __name__ == "__main__":
    PARSER = bench_parser("rules_study", __doc__, seeds=_MOST_SEEDS)
    PARSER.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="[all]")
    PARSER.add_argument("--laps", nargs="+", type=positive, metavar="K", help="[the case's]")
    PARSER.add_argument("--hours", type=float, default=8, metavar="H", help="at most [8]")
    PARSER.add_argument("--results", default=os.path.join(_ROOT, "docs/results/rules_study.jsonl"),
                        metavar="FILE", help="all runs so far [docs/results/rules_study.jsonl]")
    PARSER.add_argument("--table", metavar="FILE", help="that of data/rules.json [DIR/rules.json]")
    main(PARSER, _bench)
