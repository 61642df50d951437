"""Choices of configurations in which every pair of values stands at least once.

CHOICES = {"rule": {"dp": {"cyclic.rule": "dp"}, …}, "laps": {…}}: what each value sets, by path.
"""
import itertools
import random


def pairs_of(choice):
    return set(itertools.combinations(sorted(choice.items()), 2))


def all_pairs(choices, allowed=lambda choice: True):
    """Those of which `allowed` takes both values together."""
    return {pair for one, other in itertools.combinations(sorted(choices), 2)
            for pair in itertools.product([(one, value) for value in choices[one]],
                                          [(other, value) for value in choices[other]])
            if allowed(dict(pair))}


def covering(choices, allowed=lambda choice: True, seed=30):
    """Choices in which every allowed pair stands: each the best of many random ones.

    They are always the same.
    """
    rng = random.Random(seed)
    left = all_pairs(choices, allowed)
    found = []
    while left:
        tries = []
        while len(tries) < 200:
            first = dict(rng.choice(sorted(left)))
            choice = {name: first.get(name, rng.choice(sorted(values)))
                      for name, values in choices.items()}
            if allowed(choice):
                tries.append(choice)
        best = max(tries, key=lambda each: len(left & pairs_of(each)))
        left -= pairs_of(best)
        found.append(best)
    return found


def settings_of(choices, choice):
    """By path: what a choice sets."""
    return {path: what for name, value in choice.items()
            for path, what in choices[name][value].items()}
