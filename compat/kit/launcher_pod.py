"""The pod of a VMI as virt-controller describes it and the kubelet runs it: volumes, command line, environment."""

import contextlib
import os
import shutil
import uuid

from kit import mounts, settings
from kit.container import Container, name_and_state, non_root_identity, root_identity
from kit.image import USER
from kit.sidecar import Sidecar
from kit.wait import until

PODS = "/var/lib/kubelet/pods"
# emptyDir volume -> where the launcher has it
EMPTY_DIRS = {
    "private": "/var/run/kubevirt-private",
    "public": "/var/run/kubevirt",
    "ephemeral-disks": "/var/run/kubevirt-ephemeral-disks",
    "libvirt-runtime": "/var/run/libvirt",
    "sockets": "/var/run/kubevirt/sockets",
    "container-disks": "/var/run/kubevirt/container-disks",
    "hotplug-disks": "/var/run/kubevirt/hotplug-disks",
    "hook-sidecar-sockets": "/var/run/kubevirt-hooks",
}
QEMU_TIMEOUT = 300  # seconds, --qemu-timeout
# virt-controller adds this to the guest's grace period for --grace-period-seconds.
GRACE_MARGIN = 15
LIBVIRT = "qemu+unix:///session?socket=/var/run/libvirt/virtqemud-sock"
TUN = ("/dev/net/tun", 10, 200)
# As the kubelet writes them for a pod in the namespace "default"; the address is not the pod's.
RESOLV_CONF = """search default.svc.cluster.local svc.cluster.local cluster.local
nameserver 10.96.0.10
nameserver fd00:10:96::a
options ndots:5
"""
HOSTS = """127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
127.0.0.1	{hostname}
"""


class LauncherPod:
    """Options, beside the image and the VMI:

    log           file or pipe that its standard output and error go to
    disk          image file for claims and container disks
    network       named network namespace of the pod; with one, or with interfaces, the pod has /dev/net/tun
    root          a VMI that runs as root
    tmpfs_claims  claim -> size of its file system; its disk.img is sparse and larger
    secrets       Secret -> {key: text} for volumes and access credentials
    state         what of the VM's state is on its backend storage: "swtpm", "nvram", "cbt"
    shared        folder with claims that several nodes see
    userfaultfd   the pod has /dev/userfaultfd, for post-copy. Real nodes have sysctl vm.unprivileged_userfaultfd=1,
                  which belongs to the machine and not to a namespace
    ovmf          --ovmf-path in place of the launcher's
    cpuset        the pod's CPUs, such as "0-1", for a VMI with dedicated CPUs
    hooks         the text of each hook sidecar's program onDefineDomain, see kit.sidecar
    late_hooks    the sidecars start with start_sidecars(), and not with the pod
    network_info  the text of the file that names the devices of the pod's networks
    """

    def __init__(
        self,
        vmi,
        image,
        log,
        *,
        disk,
        uid=None,
        network=None,
        root=False,
        tmpfs_claims=None,
        secrets=None,
        state=(),
        shared=None,
        userfaultfd=False,
        ovmf=None,
        cpuset=None,
        hooks=(),
        late_hooks=False,
        network_info=None,
    ):
        self.uid = uid or str(uuid.uuid4())
        self.vmi, self.image, self.log, self.disk = vmi, image, log, disk
        self.vmi_name = vmi["metadata"]["name"]
        self.name = f"virt-launcher-{self.vmi_name}-{self.uid[:5]}"
        self.folder = f"{PODS}/{self.uid}"
        self.hostname = vmi["spec"].get("hostname", self.vmi_name)[:60]
        self.network, self.root, self.shared, self.userfaultfd = network, root, shared, userfaultfd
        self.tmpfs_claims, self.secrets, self.state = tmpfs_claims or {}, secrets or {}, state
        self.ovmf = ovmf or image.launcher.ovmf
        self.cpuset, self.hooks, self.late_hooks, self.sidecars = cpuset, hooks, late_hooks, []
        self.network_info = network_info

    def start(self):
        volumes = [(self.volume("empty-dir", name), path, "") for name, path in EMPTY_DIRS.items()]
        self.volume("empty-dir", "virt-bin-share-dir")
        for index, volume in enumerate(self.vmi["spec"]["volumes"]):
            volumes += self.vmi_volume(index, volume)
        volumes += self.access_credentials() + self.backend_storage()
        volumes += [
            (self.pod_file("resolv.conf", RESOLV_CONF), "/etc/resolv.conf", ""),
            (self.pod_file("hosts", HOSTS.format(hostname=self.hostname)), "/etc/hosts", ""),
        ]
        if self.network_info:
            folder = self.keys("downward-api", "network-info-annotation", {"network-info": self.network_info})
            volumes.append((folder, "/etc/podinfo", "ro"))
        if not self.image.modular_libvirt:  # libvirtd makes a socket by its own name
            os.symlink("libvirt-sock", self.volume("empty-dir", "libvirt-runtime") + "/virtqemud-sock")
        if not self.late_hooks:
            self.start_sidecars()
        self.container = Container(
            self.name,
            self.image,
            self.command(),
            cgroup=self.uid,
            volumes=volumes,
            devices=self.devices(),
            environment=self.environment(),
            identity=root_identity() if self.root else non_root_identity(),
            log=self.log,
            hostname=self.hostname,
            network=self.network,
            folder="/var/run/kubevirt-ephemeral-disks",
            cpus=self.cpuset,
        )
        return self

    def start_sidecars(self):
        sockets = self.volume("empty-dir", "hook-sidecar-sockets")
        self.sidecars = [Sidecar(self, sockets, index, text) for index, text in enumerate(self.hooks)]

    # ---- volumes

    def volume(self, plugin, name):
        folder = f"{self.folder}/volumes/kubernetes.io~{plugin}/{name}"
        os.makedirs(folder, exist_ok=True)
        os.chown(folder, 0, USER)
        os.chmod(folder, 0o2777)
        return folder

    def vmi_volume(self, index, volume):
        """The mounts of one of the VMI's volumes."""
        name = volume["name"]
        claim = volume.get("persistentVolumeClaim")
        if claim and not claim.get("hotpluggable"):
            return [(self.claim(claim["claimName"]), f"/var/run/kubevirt-private/vmi-disks/{name}", "")]
        if volume.get("containerDisk"):  # an image volume
            folder = f"{self.folder}/volumes/kubernetes.io~image/{name}"
            os.makedirs(folder + "/disk")
            shutil.copyfile(self.disk, folder + "/disk/disk.img")
            os.chmod(folder + "/disk/disk.img", 0o444)
            return [(folder, f"/var/run/kubevirt-image-volume/disk_{index}", "ro")]
        if volume.get("configMap"):
            return [
                (
                    self.keys("configmap", name, {"Key-One": "value one\n"}),
                    f"/var/run/kubevirt-private/config-map/{name}",
                    "ro",
                )
            ]
        if volume.get("secret"):
            keys = self.secrets.get(volume["secret"]["secretName"], {"Key-One": "value one\n"})
            return [(self.keys("secret", name, keys), f"/var/run/kubevirt-private/secret/{name}", "ro")]
        return []

    def claim_folder(self, claim):
        """Where the kubelet mounts the claim; the same folder on all nodes, where the claim is shared."""
        folder = self.volume("local-volume", claim)
        if self.shared and os.path.isdir(f"{self.shared}/{claim}"):
            mounts.bind(f"{self.shared}/{claim}", folder)
        return folder

    def claim(self, claim):
        folder = self.claim_folder(claim)
        if claim in self.tmpfs_claims:
            mounts.mount_tmpfs(folder, f"mode=2777,gid={USER},size={self.tmpfs_claims[claim]}")
            with open(folder + "/disk.img", "wb") as f:
                f.truncate(256 << 20)
        image = folder + "/disk.img"
        if not os.path.exists(image):
            shutil.copyfile(self.disk, image)
        os.chown(image, 0, USER)
        os.chmod(image, 0o660)
        return folder

    def keys(self, plugin, name, keys):
        """A volume with a file for each key of a ConfigMap or Secret, or each annotation."""
        folder = self.volume(plugin, name)
        for key, text in keys.items():
            with open(f"{folder}/{key}", "w") as f:
                f.write(text)
        return folder

    def access_credentials(self):
        out = []
        for credential in self.vmi["spec"].get("accessCredentials", []):
            (kind,) = credential.values()
            secret = kind["source"]["secret"]["secretName"]
            volume = f"{secret}-access-cred"
            out.append(
                (
                    self.keys("secret", volume, self.secrets[secret]),
                    f"/var/run/kubevirt-private/secret/{volume}",
                    "ro",
                )
            )
        return out

    def backend_storage(self):
        """The claim with the VM's state, by subPath; emptyDirs where the folders above would otherwise be root's."""
        if not self.state:
            return []
        private = "/var/run/kubevirt-private"
        paths = {
            "swtpm": f"{private}/libvirt/qemu/swtpm",
            "nvram": f"{private}/libvirt/qemu/nvram",
            "cbt": f"{private}/libvirt/qemu/cbt",
        }
        claim = self.claim_folder(f"persistent-state-for-{self.vmi_name}")
        out = [
            (self.volume("empty-dir", "private-libvirt"), f"{private}/libvirt", ""),
            (self.volume("empty-dir", "private-libvirt-qemu"), f"{private}/libvirt/qemu", ""),
            (sub_path(claim, "meta"), "/run/kubevirt-private/backend-storage-meta", ""),
        ]
        out += [(sub_path(claim, name), paths[name], "") for name in self.state]
        if "swtpm" in self.state:
            out.append((sub_path(claim, "swtpm-localca"), f"{private}/var/lib/swtpm-localca", ""))
        return out

    def pod_file(self, name, text):
        with open(f"{self.folder}/{name}", "w") as f:
            f.write(text)
        return f"{self.folder}/{name}"

    # ---- the container

    def command(self):
        meta = self.vmi["metadata"]
        grace = self.vmi["spec"].get("terminationGracePeriodSeconds", 30) + GRACE_MARGIN
        user = [] if self.root else ["--run-as-nonroot"]
        has_hook_flag = settings.KUBEVIRT == settings.VERSIONS[0]
        libvirt_hook = ["--libvirt-hook-server-and-client"] if has_hook_flag else []
        return [
            "/usr/bin/virt-launcher-monitor",
            "--qemu-timeout",
            f"{QEMU_TIMEOUT}s",
            "--name",
            meta["name"],
            "--uid",
            meta["uid"],
            "--namespace",
            meta["namespace"],
            "--kubevirt-share-dir",
            "/var/run/kubevirt",
            "--ephemeral-disk-dir",
            "/var/run/kubevirt-ephemeral-disks",
            "--container-disk-dir",
            "/var/run/kubevirt/container-disks",
            "--grace-period-seconds",
            str(grace),
            "--hook-sidecars",
            str(len(self.hooks)),
            "--ovmf-path",
            self.ovmf,
            "--disk-memory-limit",
            "2097152000",
            "--hypervisor",
            "kvm",
            *user,
            "--image-volume",
            *libvirt_hook,
            "--upgrade-ordinal-ifaces",
            "--vm-stats-collector",
            "--allow-emulation",
            *self.image.launcher.arguments,
        ]

    def environment(self):
        own = {"POD_NAME": self.name, **self.image.launcher.environment}
        if self.root:
            return own
        return {
            "XDG_CACHE_HOME": "/var/run/kubevirt-private",
            "XDG_CONFIG_HOME": "/var/run/kubevirt-private",
            "XDG_RUNTIME_DIR": "/var/run",
            **own,
        }

    def devices(self):
        interfaces = self.vmi["spec"]["domain"]["devices"].get("interfaces")
        devices = [TUN] if self.network or interfaces else []
        if self.userfaultfd:
            with open("/proc/misc") as f:
                minors = [line.split()[0] for line in f if line.split()[1] == "userfaultfd"]
            devices += [("/dev/userfaultfd", 10, minor) for minor in minors]
        return devices

    # ---- what the controller and the scenarios ask

    def poll(self):
        """None, or the exit status."""
        return self.container.exit_code()

    def signal(self, number):
        """To each container's first process, as the kubelet does."""
        for container in (self.container, *self.sidecars):
            container.signal(number)

    def signal_processes(self, start, number):
        """To the processes whose name begins so; returns how many there are."""
        found = self.pids(start)
        for pid in found:
            os.kill(pid, number)
        return len(found)

    def kill(self):
        self.container.kill()
        for sidecar in self.sidecars:
            sidecar.kill()

    def kill_launcher(self, number):
        """The process virt-launcher only, and neither its monitor nor what it has started. Waits for its end."""
        # Parents come first; a child may have the name until it executes.
        pid = next(
            pid for pid, name, _, state in self.container.tree() if name == "virt-launcher" and state != "Z"
        )

        def has_ended():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                return True
            return not self.lives(pid)

        # More than once: Rust's handler lets a SIGSEGV pass that no fault of the process repeats.
        until("the launcher's end", has_ended, 10, 0.002)
        return 1

    def tree(self):
        """(command name, state) of every process."""
        return [(name, state) for _, name, _, state in self.container.tree()]

    def pids(self, start):
        return self.container.find(start)

    def guests(self):
        """The pids of the QEMUs that run a guest; libvirt starts others to learn what QEMU can."""

        def runs_a_guest(pid):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as f:
                return b"guest=" in f.read()
            return False

        return [pid for pid in self.pids("qemu-system") if runs_a_guest(pid)]

    @staticmethod
    def lives(pid):
        """Whether the process of that pid, as the node sees it, has not ended. The tree may lack one for a moment."""
        found = name_and_state(pid)
        return found is not None and found[1] != "Z"

    def path(self, path):
        """A path inside the container, as the node sees it."""
        return f"/proc/{self.container.first_process()}/root{path}"

    def has_hotplugged(self, volume):
        """Whether virt-handler has mounted that volume among the hotplugged ones."""
        with open(self.path("/proc/1/mountinfo")) as f:
            return any(line.split()[4].startswith(f"/run/kubevirt/hotplug-disks/{volume}") for line in f)

    def vcpu_affinities(self):
        """The CPUs that each of QEMU's threads for virtual CPUs may run on."""
        (qemu,) = self.pids("qemu")
        out = {}
        for thread in os.listdir(f"/proc/{qemu}/task"):
            with open(f"/proc/{qemu}/task/{thread}/status") as f:
                fields = dict(line.split(":", 1) for line in f)
            if fields["Name"].strip().startswith("CPU "):
                out[fields["Name"].split("/")[0].strip()] = fields["Cpus_allowed_list"].strip()
        return out

    def allowed_downtime(self):
        """Of the migration, in milliseconds."""
        return int(self.virsh("migrate-getmaxdowntime")["output"])

    def virsh(self, verb, *arguments):
        """virsh in the pod, about the VM's domain: exit status and output."""
        domain = f"{self.vmi['metadata']['namespace']}_{self.vmi_name}"
        return self.container.run(["virsh", "-c", LIBVIRT, verb, domain, *arguments])

    def hook_calls(self):
        """The calls that each hook sidecar's program has noted."""
        return [sidecar.calls() for sidecar in self.sidecars]

    def sidecar_exit_codes(self):
        return [sidecar.exit_code() for sidecar in self.sidecars]

    def save_core_files(self, folder):
        """Copies the core files of what has crashed in the container, and returns their new paths."""
        out, place = [], f"{self.folder}/volumes/kubernetes.io~empty-dir/ephemeral-disks"
        for name in os.listdir(place) if os.path.isdir(place) else []:
            if name.startswith("core"):
                out.append(f"{folder}/{self.vmi_name}-{name}")
                shutil.copy2(f"{place}/{name}", out[-1])
        return out

    def remove_volumes(self):
        """What the kubelet does with a terminated pod; returns mounts that virt-handler has left in its volumes."""
        self.container.remove()
        for sidecar in self.sidecars:
            sidecar.remove()
        expected = {
            f"volumes/kubernetes.io~local-volume/{claim}"
            for claim in [*self.tmpfs_claims, *(os.listdir(self.shared) if self.shared else [])]
        }
        left = mounts.unmount_below(self.folder)
        if self.shared and mounts.below(self.folder):
            raise RuntimeError("a shared claim is still mounted")  # rmtree would empty it
        shutil.rmtree(self.folder, ignore_errors=True)
        return [path for path in left if path not in expected]


def sub_path(volume, name):
    """A folder in a volume as the kubelet makes it for a subPath."""
    folder = f"{volume}/{name}"
    os.makedirs(folder, exist_ok=True)
    os.chown(folder, 0, USER)
    os.chmod(folder, 0o2777)
    return folder
