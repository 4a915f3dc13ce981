"""Process 1 of a node: runs the command given, passes signals on to it, and reaps orphans."""

import os
import signal
import subprocess
import sys

child = subprocess.Popen(sys.argv[1:])
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda received, frame: child.send_signal(received))

code = None
while code is None:
    try:
        pid, status = os.wait()
    except ChildProcessError:
        break
    if pid == child.pid:
        code = os.waitstatus_to_exitcode(status)
sys.exit(code if code is None or code >= 0 else 128 - code)
