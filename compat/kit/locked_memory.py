"""For machines whose root may not raise limits (without CAP_SYS_RESOURCE): a program that raises a process's limit of locked
memory hears that it is done.

    python3 -m kit.locked_memory PROGRAM [ARGUMENT...]

virt-handler raises QEMU's before it has a device of the host attached. No scenario attaches one that locks memory.
"""

import os
import sys

from kit.seccomp import SECCOMP_RET_ERRNO, filter_of, install_filter

SYS_PRLIMIT64, RLIMIT_MEMLOCK = 302, 8
CAP_SYS_RESOURCE = 24
# The resource is the second argument, and the new limit's address the third; one that only reads has
# none.
FILTER = filter_of(SYS_PRLIMIT64, [(1, RLIMIT_MEMLOCK, True), (2, 0, False)], SECCOMP_RET_ERRNO)


def may_be_raised():
    with open("/proc/self/status") as f:
        (mask,) = (line.split()[1] for line in f if line.startswith("CapEff:"))
    return bool(int(mask, 16) >> CAP_SYS_RESOURCE & 1)


if __name__ == "__main__":
    install_filter(FILTER)
    os.execv(sys.argv[1], sys.argv[1:])
