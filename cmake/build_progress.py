#!/usr/bin/env python3
"""One line that tells how far a build is: ninja's output goes in, NINJA_STATUS='@%f %t ' set; usage: build_progress.py WHAT.

  rz: building build/release: 34 of 61 steps, 1 min 12 s, about 50 s left

On a terminal the line is written over; elsewhere one comes every 20 seconds. What compilers say is passed on.
"""
import re
import sys
import time

STEP = re.compile(r"@(\d+) (\d+) ")


def words(seconds):
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


class Line:
    """The progress line of one build."""

    def __init__(self, what, out):
        self.what, self.out = what, out
        self.terminal = out.isatty()
        self.start = time.monotonic()
        self.shown_at = self.start
        self.shown = False

    def show(self, done, steps, last=False):
        now = time.monotonic()
        if not last and now - self.shown_at < (0.2 if self.terminal else 20):
            return
        gone = now - self.start
        text = f"rz: {self.what}: {done} of {steps} steps, {words(gone)}"
        if done < steps:
            text += f", about {words(gone * (steps - done) / max(done, 1))} left"
        self.out.write(("\r\033[K" if self.terminal else "") + text + ("" if self.terminal else "\n"))
        self.out.flush()
        self.shown_at, self.shown = now, True

    def clear(self):
        """Makes room for other words."""
        if self.terminal and self.shown:
            self.out.write("\r\033[K")
            self.shown = False


def main():
    line = Line(sys.argv[1], sys.stderr)
    done = steps = 0
    for text in sys.stdin:
        step = STEP.match(text)
        if step:
            done, steps = int(step[1]), int(step[2])
            line.show(done, steps)
        elif not text.startswith("ninja: no work to do"):
            line.clear()
            sys.stderr.write(text)
    if steps:
        line.show(done, steps, last=True)
        if line.terminal:
            sys.stderr.write("\n")


if __name__ == "__main__":
    main()
