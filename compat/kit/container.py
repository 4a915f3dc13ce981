"""Containers: what a container runtime does for a pod, by unshare, overlayfs and cgroup v2."""

import os
import shutil
import signal
import subprocess
import time
from shlex import join, quote

from kit import mounts
from kit.wait import until

CGROUP = "/sys/fs/cgroup/compat"
CONTAINERS = "/run/containers"
INIT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "container-init")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What containerd and CRI-O leave a root container by default, and SYS_NICE, which virt-controller
# adds in root mode.
ROOT_CAPABILITIES = (
    "chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,net_bind_service,net_raw,sys_chroot,"
    "mknod,audit_write,setfcap,sys_nice"
)
KILL_TIMEOUT = 20  # seconds
CGROUP_REMOVAL_ATTEMPTS = 50


def non_root_identity():
    """setpriv's arguments for a pod of uid 107 with NET_BIND_SERVICE and allowPrivilegeEscalation false."""
    return [
        "--reuid",
        "107",
        "--regid",
        "107",
        "--groups",
        "107",
        "--bounding-set",
        "-all,+net_bind_service",
        "--inh-caps",
        "-all",
        "--no-new-privs",
    ]


def root_identity():
    bounding = ",".join("+" + name for name in ROOT_CAPABILITIES.split(","))
    return [
        "--reuid",
        "0",
        "--regid",
        "0",
        "--groups",
        "107",
        "--bounding-set",
        "-all," + bounding,
        "--inh-caps",
        "-all",
    ]


def privileged_identity():
    return ["--reuid", "0", "--regid", "0", "--groups", "107"]


class Container:
    """Starts at once.

    volumes  (folder or file on the node, path in the container, "ro" or "")
    devices  (path in the container, major, minor)
    network  a named network namespace; without one it gets its own
    cpus     its CPU set, such as "0-1"; without one it has all CPUs
    """

    def __init__(
        self,
        name,
        image,
        command,
        *,
        cgroup=None,
        volumes=(),
        devices=(),
        environment=None,
        identity=None,
        log=None,
        hostname="pod",
        network=None,
        folder="/",
        cpus=None,
    ):
        self.log, self.shown_cpuset = log, False
        self.folder = f"{CONTAINERS}/{name}"
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        self.cgroup = f"{CGROUP}/{cgroup or name}"
        os.makedirs(self.cgroup, exist_ok=True)
        environment = {"PATH": PATH, "HOME": "/home/qemu", "HOSTNAME": hostname, **(environment or {})}
        with open(self.folder + "/mounts", "w") as f:
            f.writelines([*mount_lines(volumes), *device_lines(devices)])
        with open(self.folder + "/program", "w") as f:
            variables = [f"{key}={value}" for key, value in environment.items()]
            f.write(
                f"cd {quote(folder)}\nexec "
                + join(["env", "-i", *variables, "setpriv", *(identity or privileged_identity()), *command])
                + "\n"
            )
        enter = ["nsenter", f"--net=/run/netns/{network}"] if network else []
        own = [] if network else ["--net"]
        pinned = ["taskset", "--cpu-list", cpus] if cpus else []
        script = f"echo $$ > {quote(self.cgroup)}/cgroup.procs; exec " + join(
            [
                *pinned,
                *enter,
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--uts",
                "--ipc",
                *own,
                "--cgroup",
                "--propagation",
                "slave",
                "--",
                "bash",
                INIT,
                self.folder,
            ]
        )
        self.process = subprocess.Popen(
            ["bash", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=open(log, "ab") if log else None,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                **os.environ,
                "CONTAINER_LAYERS": ":".join(image.layers),
                "CONTAINER_HOSTNAME": hostname,
                "CONTAINER_CPUS": cpus or "",
            },
        )
        if cpus:
            until("the container's first process", lambda: self.first_process() or self.exit_code(), 10)
            self.show_cpuset(cpus)

    def show_cpuset(self, cpus):
        """What virt-handler reads of the pod's cgroup, also where the kernel's cgroup v2 has no cpuset controller."""
        mounts.mount_tmpfs(self.cgroup, "mode=755")
        with open(self.cgroup + "/cpuset.cpus.effective", "w") as f:
            f.write(cpus + "\n")
        self.shown_cpuset = True

    # ---- its processes

    def tree(self):
        """(pid, command name, parent, state) of every process in it, parents first."""
        out, todo = [], [self.process.pid]
        while todo:
            parent = todo.pop(0)
            for pid in children(parent):
                found = name_and_state(pid)
                if found:
                    out.append((pid, found[0], parent, found[1]))
                    todo.append(pid)
        return out

    def first_process(self):
        """The pid of the container's process 1; None once it has ended."""
        return next(iter(children(self.process.pid)), None)

    def find(self, start):
        """The pids of the living processes whose name begins so."""
        return [pid for pid, name, _, state in self.tree() if name.startswith(start) and state != "Z"]

    # ---- its end

    def exit_code(self):
        """None while it runs."""
        return self.process.poll()

    def signal(self, number):
        pid = self.first_process()
        if pid:
            os.kill(pid, number)

    def wait(self, timeout):
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def kill(self):
        if self.process.poll() is None:
            try:
                os.kill(self.first_process() or self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait(KILL_TIMEOUT)

    def remove(self):
        self.kill()
        if self.shown_cpuset:
            self.shown_cpuset = False
            mounts.unmount(self.cgroup)
        for _ in range(CGROUP_REMOVAL_ATTEMPTS):
            try:
                os.rmdir(self.cgroup)
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.1)
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, command, timeout=30, identity=None):
        """Runs a command in the container's namespaces, as `kubectl exec` does: exit status and output."""
        enter = ["nsenter", "-t", str(self.first_process()), "-m", "-p", "-n", "-u", "-i", "-C"]
        done = subprocess.run(
            [*enter, "setpriv", *(identity or non_root_identity()), *command],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={"PATH": PATH},
        )
        return {"exit": done.returncode, "output": (done.stdout + done.stderr).strip()}


def mount_lines(volumes):
    for source, target, options in volumes:
        inside = quote("root" + target)
        if os.path.isdir(source):
            yield f"mkdir -p {inside}\n"
        else:
            yield f"mkdir -p $(dirname {inside}); touch {inside}\n"
        yield f"mount --rbind {quote(source)} {inside}\n"
        if "ro" in options:
            yield f"mount -o remount,bind,ro {inside}\n"


def device_lines(devices):
    for path, major, minor in devices:
        yield f"mknod -m 666 {quote('root' + path)} c {major} {minor}\n"


def children(pid):
    out = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # each thread has a list of its own
            with open(f"/proc/{pid}/task/{thread}/children") as f:
                out += [int(p) for p in f.read().split()]
    except OSError:
        pass
    return sorted(out)


def name_and_state(pid):
    try:
        with open(f"/proc/{pid}/comm") as f:
            name = f.read().strip()
        with open(f"/proc/{pid}/stat") as f:
            state = f.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None
    return name, state
