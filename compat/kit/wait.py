"""Waiting with a limit."""

import time

from kit import settings


def until(what, check, timeout, interval=0.1):
    """Calls `check` until it returns something true, which is returned; TimeoutError after `timeout` seconds."""
    deadline = time.time() + timeout * settings.TIMEOUTS
    while True:
        result = check()
        if result:
            return result
        if time.time() > deadline:
            raise TimeoutError(f"{what}: not within {timeout} s")
        time.sleep(interval)
