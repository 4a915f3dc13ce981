"""Starts the API server as a process of its own."""

import os
import subprocess
import sys

from kit import kube, settings
from kit.wait import until


class ApiServer:
    def __init__(self, log):
        address = settings.API_SERVER.removeprefix("http://")
        kit = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kit.apiserver", address],
            cwd=kit,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=open(log, "w"),
        )
        until("the API server", self.serving, 15)

    @staticmethod
    def serving():
        try:
            return kube.call("GET", "/healthz", timeout=1) is not None
        except OSError:
            return False
