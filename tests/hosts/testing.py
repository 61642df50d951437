"""The main of every test here: SKIPPED, and the reason, where the machine has no hosts for us."""
import os
import signal
import sys
import unittest

from hosts import why_not

SKIPPED = 77


def main() -> None:
    """Ends like unittest.main; a signal ends it as an exception, so that nothing is left."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    reason = why_not()
    if reason is not None:
        print(f"SKIPPED {os.path.basename(sys.argv[0])}: {reason}")
        sys.exit(SKIPPED)
    unittest.main()
