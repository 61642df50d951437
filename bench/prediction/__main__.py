"""The command `./rz bench prediction`: the step time that a plan predicts beside the one that a run
measures.

Each pair is measured right after each other: the profile, and the run that it should foretell.
"""
import itertools
import os
import re
import statistics
import tempfile

from memory.__main__ import NAMES, RULES, Case
from ring_run import (BenchError, Options, bench_parser, main, positive, run, set_words, table,
                      take_turns, train, write_json)

# Samples of a micro-batch: steps short enough to repeat, with adds and updates that count.
MICRO_BATCHES = {"gpt": 2, "resnet": 4, "mlp": 32}


def _bench(options: Options, command: str) -> list[str]:
    def one(case: tuple[str, int, str]) -> tuple[float, float]:
        """Predicted and measured seconds of a step."""
        model, workers, rule = case
        with tempfile.TemporaryDirectory() as folder:
            config, profile = (os.path.join(folder, name) for name in ("run.json", "profile.json"))
            write_json(Case(model, "shm", workers, rule).configuration(options.iterations), config)
            settings = {"train_micro_batch_size_per_gpu": MICRO_BATCHES[model]}
            plan = run([options.program, "plan", config, "--profile", profile,
                        *set_words(settings)])
            if (step := re.search(r"^step +(\S+) ms", plan, re.MULTILINE)) is None:
                raise BenchError(f"{case}: `ringzero plan` printed no step")
            summary = train(options, settings, config=config)
            return float(step[1]) / 1000, summary["step_seconds"]["median"]

    cases = list(itertools.product(NAMES, options.workers, RULES))
    rounds = take_turns(cases, options.rounds, one)
    rows = []
    for case in sorted(cases):
        pairs = [each[case] for each in rounds]
        ratios = [predicted / measured for predicted, measured in pairs]
        predicted, measured = (statistics.median(column) for column in zip(*pairs))
        rows.append([NAMES[case[0]], *case[1:], f"{predicted:.4f}", f"{measured:.4f}",
                     f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"])
    return ["# Predicted and measured step times", "",
            f"`{command}` made this, on {len(os.sched_getaffinity(0))} cores: in each of "
            f"{options.rounds} rounds, for each line, `ringzero plan --profile` measures the "
            "layers anew and predicts, and `ringzero train` runs right after it. Seconds are "
            "medians; the ratio is the median of the rounds' own ratios, with the lowest and the "
            "highest.", "",
            *table(["model", "workers", "rule", "predicted, s", "measured, s",
                    "predicted / measured"], rows)]


if __name__ == "__main__":
    PARSER = bench_parser("prediction", __doc__, rounds=3)
    PARSER.add_argument("--workers", nargs="+", type=positive, default=[2, 4], metavar="N",
                        help="[2 4]")
    PARSER.add_argument("--iterations", type=positive, default=20,
                        help="of each run; the first 10 are left out [20]")
    main(PARSER, _bench)
