"""KubeVirt's virt-exportserver: to it the launcher makes a tunnel through which a backup is read, and it serves that by HTTPS."""

import json
import os
import shutil
import subprocess
import sys

from kit import settings
from kit.wait import until

PROGRAM = "virt-exportserver"
PORT = 443
TOKEN = "compat"
# Of the certificates that are there: the server's name, and whose tunnels the server takes.
NAME = "virt-handler"
UID = "virt-handler"
# Run in the pod's network: prints what the server answers, or its status if that is not 200.
GET = """
import http.client, shutil, ssl, sys
host, port, path, token = sys.argv[1:]
connection = http.client.HTTPSConnection(host, int(port), timeout=60, context=ssl._create_unverified_context())
connection.request("GET", path, headers={"x-kubevirt-export-token": token})
answer = connection.getresponse()
if answer.status != 200:
    sys.exit(str(answer.status))
shutil.copyfileobj(answer, sys.stdout.buffer)
"""


def lacks(_session):
    """virt-handler does without it, so only its own scenario needs it."""
    return None if program() else f"KubeVirt's {PROGRAM} beside virt-handler: go build ./cmd/{PROGRAM}"


def program():
    return shutil.which(PROGRAM, path=os.environ.get("COMPAT_HANDLER", ""))


def certificate(name):
    with open(f"{settings.CERTIFICATES}/{name}") as f:
        return f.read()


class ExportServer:
    """Serves the export of one volume, in the pod's network. `checkpoint`: of an incremental backup."""

    def __init__(self, pod, folder, volume, checkpoint=""):
        self.enter = ["nsenter", "-t", str(pod.container.first_process()), "-n"]
        token = f"{folder}/export-token"
        with open(token, "w") as f:
            f.write(TOKEN)
        environment = {
            **os.environ,
            "CERT_FILE": f"{settings.CERTIFICATES}/server.crt",
            "KEY_FILE": f"{settings.CERTIFICATES}/server.key",
            "TOKEN_FILE": token,
            "LISTEN_ADDR": f"127.0.0.1:{PORT}",
            "BACKUP_UID": UID,
            "BACKUP_TYPE": "Incremental" if checkpoint else "Full",
            "BACKUP_CHECKPOINT": checkpoint,
            "BACKUP_CACERT": certificate("ca.crt"),
            "VOLUME_BACKUP_PATH": volume,
            "VOLUME_DATA_URI": "/data",
            "VOLUME_MAP_URI": "/map",
        }
        with open(f"{folder}/{PROGRAM}.log", "a") as log:
            self.process = subprocess.Popen([*self.enter, program()], env=environment, stdout=log, stderr=log)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.terminate()
        self.process.wait(20)

    @staticmethod
    def options():
        """What virt-controller adds to a backup's options, so that the launcher connects to this server."""
        return {
            # Without a port, as virt-controller gives it.
            "exportServerAddr": "127.0.0.1",
            "exportServerName": NAME,
            "caCert": certificate("ca.crt"),
            "backupCert": certificate("client.crt"),
            "backupKey": certificate("client.key"),
        }

    def get(self, path):
        """What it answers; CalledProcessError if that is an error."""
        command = [*self.enter, sys.executable, "-c", GET, "127.0.0.1", str(PORT), path, TOKEN]
        return subprocess.run(command, capture_output=True, timeout=120, check=True).stdout

    def connected(self):
        """Waits for the launcher's tunnel."""

        def is_connected():
            try:
                return self.get("/map")
            except subprocess.CalledProcessError:
                return False

        until("a tunnel", is_connected, 60)
        return "a tunnel"

    def map(self):
        """Offset, length and description of each extent."""
        extents = json.loads(self.get("/map?page_size=100000"))["extents"]
        return [[it["offset"], it["length"], it["description"]] for it in extents]

    def data(self, offset, length):
        return self.get(f"/data?offset={offset}&length={length}")
