#!/bin/bash
# Run once per node by virt-handler's init container, from this image: stores what libvirt and QEMU
# can do here. virt-handler makes node labels of these files, so their names and contents are a
# contract.
#
# HYPERVISOR_DEVICE: device below /dev that accelerates (kvm). PREFERRED_VIRTTYPE: libvirt's name
# for it (kvm).
set -euo pipefail

device=${HYPERVISOR_DEVICE:-kvm}
out=/var/lib/kubevirt-node-labeller

case $(uname -m) in
x86_64) arch=x86_64 machine=q35 foreign=aarch64 foreign_machine=virt ;;
aarch64) arch=aarch64 machine=virt foreign=x86_64 foreign_machine=q35 ;;
s390x) arch=s390x machine=s390-ccw-virtio foreign='' foreign_machine='' ;;
*) exit 0 ;;
esac

# The container has a /dev of its own; the node's driver tells the number.
minor=$(awk -v device="$device" '$2 == device { print $1 }' /proc/misc)
if [ ! -e "/dev/$device" ] && [ -n "$minor" ]; then
    mknod "/dev/$device" c 10 "$minor"
fi
virttype=qemu
if [ -e "/dev/$device" ]; then
    chmod o+rw "/dev/$device"
    virttype=${PREFERRED_VIRTTYPE:-kvm}
fi
if [ -e /dev/sev ]; then
    chmod o+rw /dev/sev # QEMU asks it what it can do
fi

virtqemud -d

# Options that only newer libvirt knows.
help=$(virsh domcapabilities --help 2>&1) || true
expand=() supported=()
[[ $help != *--expand-cpu-features* ]] || expand=(--expand-cpu-features)
[[ $help != *--supported-cpu-features* ]] || supported=(--supported-cpu-features)

here=(--machine "$machine" --arch "$arch" --virttype "$virttype")
virsh domcapabilities "${here[@]}" "${expand[@]}" >"$out/virsh_domcapabilities.xml"
if [ "$arch" != aarch64 ]; then # libvirt computes baselines for x86_64 and s390x only
    virsh domcapabilities "${here[@]}" "${expand[@]}" "${supported[@]}" |
        virsh hypervisor-cpu-baseline --features /dev/stdin "${here[@]}" >"$out/supported_features.xml"
fi
virsh capabilities >"$out/capabilities.xml"

# Whether this node could emulate the other architecture; no file content means no.
if [ -n "$foreign" ]; then
    virsh domcapabilities --machine "$foreign_machine" --arch "$foreign" --virttype qemu \
        >"$out/virsh_domcapabilities_$foreign.xml" 2>/dev/null || true
fi
