"""For machines whose root may not raise limits (without CAP_SYS_RESOURCE): a program that raises a process's limit of locked
memory hears that it is done.

    python3 -m kit.locked_memory PROGRAM [ARGUMENT...]

virt-handler raises QEMU's before it has a device of the host attached. No scenario attaches one that locks memory.
"""

import os
import sys

from kit.seccomp import (
    ARCH_X86_64,
    JUMP_EQUAL,
    LOAD,
    RETURN,
    SECCOMP_RET_ALLOW,
    SECCOMP_RET_ERRNO,
    install_filter,
)

SYS_PRLIMIT64, RLIMIT_MEMLOCK = 302, 8
CAP_SYS_RESOURCE = 24
# The resource is the second argument, and the new limit's address the third; one that only reads has
# none.
FILTER = (
    (LOAD, 0, 0, 4),
    (JUMP_EQUAL, 0, 7, ARCH_X86_64),
    (LOAD, 0, 0, 0),
    (JUMP_EQUAL, 0, 5, SYS_PRLIMIT64),
    (LOAD, 0, 0, 24),
    (JUMP_EQUAL, 0, 3, RLIMIT_MEMLOCK),
    (LOAD, 0, 0, 32),
    (JUMP_EQUAL, 1, 0, 0),
    (RETURN, 0, 0, SECCOMP_RET_ERRNO),
    (RETURN, 0, 0, SECCOMP_RET_ALLOW),
)


def may_be_raised():
    with open("/proc/self/status") as f:
        (mask,) = (line.split()[1] for line in f if line.startswith("CapEff:"))
    return bool(int(mask, 16) >> CAP_SYS_RESOURCE & 1)


if __name__ == "__main__":
    install_filter(FILTER)
    os.execv(sys.argv[1], sys.argv[1:])
