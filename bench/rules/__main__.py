"""The command `./rz bench rules`: what a delayed update costs in accuracy, whatever the times."""

import charts
from ring_run import RULES, Options, bench_parser, main, say, table, train_with_metrics, write_json

_SMOOTHED = 120  # iterations in one point of the curve


# Over iterations: "accuracy", which is the held-out one in percent, and the training "loss".
Curves = dict[str, list[tuple[float, float]]]


def _run(options: Options, settings: dict[str, object]) -> Curves:
    summary, scalars = train_with_metrics(options, settings)
    evaluations = summary["evaluations"]
    losses = [each["Train/Samples/train_loss"] for each in scalars]
    chunks = [losses[i:i + _SMOOTHED] for i in range(0, len(losses), _SMOOTHED)]
    return {"accuracy": [(each["iteration"], 100 * each["accuracy"]) for each in evaluations],
            "loss": [((i + 1) * _SMOOTHED, sum(chunk) / len(chunk))
                     for i, chunk in enumerate(chunks)]}


def _section(options: Options, rate: float | None,
             runs: dict[str, list[Curves]]) -> list[str]:
    """`runs`: by rule, each seed's."""
    name, title = "rules", "the rules"
    if rate is not None:
        name, title = f"rules-{rate:g}", f"learning rate {rate:g}"

    def series(what: str) -> list[charts.Series]:
        return [charts.Series(rule, run[what], thin=what == "loss")
                for rule, seeds in runs.items() for run in seeds]

    charts.write(f"{options.out}/{name}.svg", f"ResNet-20 on Fashion-MNIST, {title}", [
        charts.Panel("held-out accuracy, %", "iteration", series("accuracy"), y_range=(70, 92)),
        charts.Panel(f"training loss, mean of {_SMOOTHED} iterations", "iteration", series("loss"),
                     y_range=(0.2, 1.0))])
    rows = []
    for rule, seeds in runs.items():
        reached, last = ([run[what][-1][1] for run in seeds] for what in ("accuracy", "loss"))
        rows.append([rule, ", ".join(f"{value:.2f}" for value in reached),
                     f"{sum(reached) / len(seeds):.2f}", f"{sum(last) / len(seeds):.3f}"])
    return ["", f"## {title[0].upper()}{title[1:]}", "",
            *table(["rule", "held-out accuracy, %, by seed", "mean", "last training loss"], rows),
            "", f"![accuracy and loss]({name}.svg)"]


def _bench(options: Options, command: str) -> list[str]:
    document = ["# The rules' accuracy", "",
                f"`{command}` made this: ResNet-20 (width 8) on Fashion-MNIST, SGD with momentum "
                "0.9, four workers; one thin line per seed."]
    everything = {}
    for rate in options.rate or [None]:
        more = {} if rate is None else {"optimizer.params.lr": rate}
        runs: dict[str, list[dict]] = {rule: [] for rule in RULES}
        for seed in range(1, options.seeds + 1):
            for rule, settings in RULES.items():
                runs[rule].append(_run(options, {**settings, **more, "seed": seed}))
                reached = runs[rule][-1]["accuracy"][-1][1]
                say(f"rate {rate or 'of the config'}, seed {seed}, {rule}: {reached:.2f} %")
        document += _section(options, rate, runs)
        everything[rate] = runs
    write_json({"command": command, "runs": everything}, options.out, "rules.json")
    return document


if __name__ == "__main__":
    PARSER = bench_parser("rules", __doc__, config="rules/fashion_mnist.json", seeds=2)
    PARSER.add_argument("--rate", type=float, action="append", metavar="LR",
                        help="learning rate, repeatable [the config's]")
    main(PARSER, _bench)
