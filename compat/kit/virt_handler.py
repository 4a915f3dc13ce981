"""The virt-handler process, its log, and its init container."""

import json
import os
import signal
import socket
import subprocess
import sys

from kit import dummy_links, locked_memory, settings
from kit.container import Container
from kit.wait import until

PROGRAM = "/usr/bin/virt-handler"
METRICS_PORT = 8443
VMSTATS_PORT = 8187  # its default; before v1.9 there is no such server, nor a flag for it
START_TIMEOUT = 60  # seconds
STOP_TIMEOUT = 30
LABELLER_TIMEOUT = 120
MODULE = (sys.executable, "-B", "-m")
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
KUBECONFIG = "/run/kubeconfig"


class VirtHandler:
    def __init__(self, log):
        self.log = log
        self.process = None

    def start(self):
        write_kubeconfig()
        address = settings.NODE_ADDRESS
        command = [
            PROGRAM,
            "--kubeconfig",
            KUBECONFIG,
            "--hostname-override",
            settings.NODE_NAME,
            "--pod-ip-address",
            address,
            "--port",
            str(METRICS_PORT),
            "--console-server-port",
            str(settings.CONSOLE_PORT),
            "--max-metric-requests",
            "3",
            "--graceful-shutdown-seconds",
            "20",
            "-v",
            str(settings.HANDLER_VERBOSITY),
        ]
        if not dummy_links.kernel_has_them():
            command = [*MODULE, dummy_links.__name__, *command]
        if not locked_memory.may_be_raised():
            command = [*MODULE, locked_memory.__name__, *command]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=open(self.log, "a"),
            stderr=subprocess.STDOUT,
            env={
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME": "/root",
                "NODE_NAME": settings.NODE_NAME,
                "MY_POD_IP": address,
            },
        )
        until("virt-handler's console server", self.serving, START_TIMEOUT)
        return self

    def serving(self):
        if self.process.poll() is not None:
            raise RuntimeError(f"virt-handler ended with {self.process.returncode}, see {self.log}")
        try:
            socket.create_connection((settings.NODE_ADDRESS, settings.CONSOLE_PORT), 1).close()
        except OSError:
            return False
        return True

    def stop(self, number=signal.SIGTERM):
        """The exit status, or "killed"."""
        self.process.send_signal(number)
        try:
            return self.process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return "killed"

    def log_size(self):
        return os.path.getsize(self.log)

    def log_lines(self, since=0):
        return json_lines(self.log, since)


def write_kubeconfig():
    with open(KUBECONFIG, "w") as f:
        json.dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "test",
                "clusters": [{"name": "test", "cluster": {"server": settings.API_SERVER}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                "users": [{"name": "test", "user": {"token": "none"}}],
            },
            f,
        )
    os.makedirs(SERVICE_ACCOUNT, exist_ok=True)
    with open(SERVICE_ACCOUNT + "/namespace", "w") as f:
        f.write("kubevirt")


def json_lines(path, since=0):
    """A log's lines; those that are not JSON get the level "raw"."""
    out = []
    if os.path.exists(path):
        with open(path, errors="replace") as f:
            f.seek(since)
            for line in f:
                try:
                    out.append(json.loads(line))
                except ValueError:
                    out.append({"level": "raw", "msg": line.rstrip()})
    return out


def label_node(image, log):
    """virt-handler's init container: node-labeller.sh of the launcher image. Returns what it wrote, by size."""
    out = "/var/lib/kubevirt-node-labeller"
    container = Container(
        "labeller",
        image,
        ["/bin/bash", "/usr/bin/node-labeller.sh"],
        volumes=[(out, out, "")],
        environment={"HYPERVISOR_DEVICE": "none", "PREFERRED_VIRTTYPE": "kvm"},
        log=log,
    )
    code = container.wait(LABELLER_TIMEOUT)
    container.remove()
    if code != 0:
        raise RuntimeError(f"node-labeller.sh ended with {code}, see {log}")
    return {name: os.path.getsize(f"{out}/{name}") for name in sorted(os.listdir(out))}
