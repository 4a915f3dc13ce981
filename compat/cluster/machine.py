"""The cluster's processes on this machine: a control plane and two nodes, each in namespaces of its own."""

import os
import signal
import subprocess
import time

from cluster.folder import HIERARCHIES
from kit.container import children, name_and_state
from kit.wait import until

HERE = os.path.dirname(os.path.abspath(__file__))
NODES = {"node01": "10.245.0.10", "node02": "10.245.0.11"}
START_TIMEOUT = 30  # seconds
NAMESPACES = ["--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--propagation", "private"]
# A cgroup with the shares of one process starves beside other work.
CPU_SHARES = 12288
PATH = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Part:
    """The control plane, or a node: what its first process and all below it do."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name

    def pid(self):
        """Of its process 1, seen from here; None if it does not run."""
        text = self.folder.read(f"run/{self.name}.pid")
        if not text:
            return None
        pid, started = text.split()
        return int(pid) if start_time(pid) == started else None

    def start(self, namespaces, *command):
        if self.pid():
            return
        self.folder.make("run")
        with open(self.folder.make("log") + f"/{self.name}.log", "ab") as log:
            process = subprocess.Popen(
                ["unshare", *NAMESPACES, *namespaces, "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=self.enter_cgroups,
            )
        pid = until(
            f"{self.name}'s first process", lambda: next(iter(children(process.pid)), None), START_TIMEOUT
        )
        self.folder.write(f"run/{self.name}.pid", f"{pid} {start_time(pid)}")

    def call(self, command, **options):
        """A command whose output is seen here, and that may last; its exit status."""
        return subprocess.call(["nsenter", "-t", str(self.pid()), *self.entered, "--", *command], **options)

    def processes(self, program):
        """Their pids, seen from here: all below its first process with that name."""
        found, todo = [], [self.pid()]
        while todo:
            below = children(todo.pop())
            todo += below
            found += [pid for pid in below if (name_and_state(pid) or [""])[0] == program[:15]]
        return found

    def enter_cgroups(self):
        """The control plane stays in ours."""

    def run(self, command, timeout=60, check=True, **options):
        """A command as if typed at the part; its output. RuntimeError where `check` and it fails."""
        done = subprocess.run(
            ["nsenter", "-t", str(self.pid()), *self.entered, "--", *command],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={"PATH": PATH, "HOME": "/root"},
            **options,
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()[-400:]}")
        return done.stdout

    def stop(self):
        """All of it at once, as a power failure."""
        pid = self.pid()
        if pid:
            os.kill(pid, signal.SIGKILL)
            until(f"{self.name}'s end", lambda: not self.pid(), START_TIMEOUT)


class ControlPlane(Part):
    entered = ("-n",)  # its files are this machine's

    def __init__(self, folder):
        super().__init__(folder, "control-plane")

    def start(self):
        self.folder.make("etcd")
        super().start(["--net"], f"{HERE}/control-plane", self.folder.path)


class Node(Part):
    entered = ("-m", "-p", "-n", "-u", "-i", "-C", "-r", "-w")

    def __init__(self, folder, name, control_plane):
        super().__init__(folder, name)
        self.control_plane = control_plane

    def start(self):
        if self.pid():
            return
        for path in self.cgroups():
            os.makedirs(path, exist_ok=True)
        prepare_cpuset(f"/sys/fs/cgroup/cpuset/{self.name}")
        with open(f"/sys/fs/cgroup/cpu/{self.name}/cpu.shares", "w") as f:
            f.write(str(CPU_SHARES))
        super().start(["--net", "--cgroup"], f"{HERE}/node", self.folder.path, self.name[-1])
        self.plug_in()

    def plug_in(self):
        """A pair of links: one end on the control plane's bridge, the other, named after the node, in the node."""
        bridge = self.control_plane
        bridge.run(
            [
                "ip",
                "link",
                "add",
                f"{self.name}-br",
                "type",
                "veth",
                "peer",
                "name",
                self.name,
                "netns",
                str(self.pid()),
            ]
        )
        bridge.run(["ip", "link", "set", f"{self.name}-br", "master", "br0", "up"])

    def cgroups(self):
        return [f"/sys/fs/cgroup/{each}/{self.name}" for each in HIERARCHIES]

    def enter_cgroups(self):
        for path in self.cgroups():
            with open(f"{path}/cgroup.procs", "w") as f:
                f.write(str(os.getpid()))

    def kill(self, program, number=signal.SIGKILL):
        """Signals all processes of that name in the node; how many there were."""
        pids = self.processes(program)
        for pid in pids:
            os.kill(pid, number)
        return len(pids)

    def stop(self):
        super().stop()
        for path in self.cgroups():
            remove_cgroup(path)


def prepare_cpuset(path):
    """cgroup v1 lets no process into a cpuset without CPUs."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        with open(f"{os.path.dirname(path)}/{name}") as source, open(f"{path}/{name}", "w") as target:
            target.write(source.read())


def remove_cgroup(path):
    """With all below it. The kernel ends the processes in it some time after their parent."""
    deadline = time.time() + START_TIMEOUT
    while os.path.isdir(path) and time.time() < deadline:
        for folder, _, _ in os.walk(path, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                time.sleep(0.1)


def start_time(pid):
    """In clock ticks since boot, as text, which with the pid names a process; None if there is none."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[19]
    except OSError:
        return None
