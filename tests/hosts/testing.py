"""What every file of tests here does first: it is SKIPPED, with the reason, where the machine has no hosts for us.

    setUpModule = testing.need_hosts
"""
import signal
import sys
import unittest

from hosts import why_not


def need_hosts() -> None:
    """A signal ends a test as an exception, so that nothing is left."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    reason = why_not()
    if reason is not None:
        raise unittest.SkipTest(reason)
