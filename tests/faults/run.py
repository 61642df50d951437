"""One training in a session of its own: its lines as they come, its processes, and what it leaves.

    with Run(PROGRAM, config, folder) as run:
        run.wait_for("iteration 3/")      # until a line on stderr begins so
        os.kill(run.launcher, signal.SIGSTOP)
        run.end(seconds)                  # the exit code; run.lines, run.ended_at
"""
import os
import queue
import signal
import subprocess
import threading
import time

from ringzero import children


def session_of(session):
    """Process ids of a session and their states; zombies are 'Z'."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            found[int(entry)] = fields[0]
    return found


class Run:
    def __init__(self, program, arguments, folder):
        self.lines = []
        self.ended_at = None
        self._came = queue.Queue()
        self._process = subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                         text=True, cwd=folder, start_new_session=True)
        self.launcher = self._process.pid
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in session_of(self.launcher):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        self._process.stderr.close()

    def _read(self):
        for line in self._process.stderr:
            self._came.put(line.rstrip("\n"))
        self._came.put(None)

    def wait_for(self, beginning, seconds=60):
        """True when a line has come that begins so; False at the end of all lines."""
        deadline = time.monotonic() + seconds
        while True:
            line = self._came.get(timeout=max(deadline - time.monotonic(), 0.001))
            if line is None:
                self._came.put(None)
                return False
            self.lines.append(line)
            if line.startswith(beginning):
                return True

    def workers(self):
        """The launcher's children, oldest first: process ids."""
        return children(self.launcher)

    def processes(self):
        """Of its session, those that are no zombies."""
        return [pid for pid, state in session_of(self.launcher).items() if state != "Z"]

    def end(self, seconds):
        """Waits for the launcher's end: its exit code. TimeoutExpired after `seconds`."""
        code = self._process.wait(timeout=seconds)
        self.ended_at = time.monotonic()
        return code

    def rest(self):
        """After the end: all lines, and what it printed."""
        self._reader.join()
        while True:
            line = self._came.get()
            if line is None:
                break
            self.lines.append(line)
        return self._process.stdout.read()
