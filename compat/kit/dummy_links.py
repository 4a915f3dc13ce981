"""For kernels without dummy links: a program's requests for one make a veth pair instead.

    python3 -m kit.dummy_links PROGRAM [ARGUMENT...]

virt-handler's bridge binding puts the pod's address on a dummy link, so that the kernel still knows it. Any link that
carries no packets and whose MAC can be set will do, such as one end of a veth pair, whose other end stays down. The program runs as it is: seccomp stops its netlink requests, a second process (this one's
child) changes the link's type in those that make a dummy link, and lets them go on.
"""

import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys

from kit.seccomp import (
    SECCOMP_FILTER_FLAG_NEW_LISTENER,
    SECCOMP_RET_USER_NOTIF,
    filter_of,
    install_filter,
)

SYS_SENDTO = 44  # x86-64
SECCOMP_USER_NOTIF_FLAG_CONTINUE = 1
NOTIF_RECV, NOTIF_SEND = 0xC0502100, 0xC0182101
NOTIFICATION = struct.Struct("=QIIiIQ6Q")  # struct seccomp_notif
RESPONSE = struct.Struct("=QqiI")  # struct seccomp_notif_resp

SOCKADDR_NL_SIZE = 12
RTM_NEWLINK = 16
# The attribute IFLA_INFO_KIND with "dummy", and the same length with a shorter text.
DUMMY = struct.pack("=HH", 9, 1) + b"dummy"
VETH = struct.pack("=HH", 9, 1) + b"veth\0"
MAX_REQUEST = 65536

# The last argument is the address's size.
FILTER = filter_of(SYS_SENDTO, [(5, SOCKADDR_NL_SIZE, True)], SECCOMP_RET_USER_NOTIF)


def kernel_has_them():
    """Whether the kernel makes dummy links. A network namespace of its own is needed to try."""
    command = ["unshare", "--net", "ip", "link", "add", "probe", "type", "dummy"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def supervise(listener):
    """Until the program and all its children have ended."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while not poll.poll()[0][1] & select.POLLHUP:
        buffer = bytearray(NOTIFICATION.size)
        try:
            fcntl.ioctl(listener, NOTIF_RECV, buffer)
        except OSError as error:
            if error.errno in (errno.EINTR, errno.ENOENT):  # the request's thread is gone
                continue
            return
        identity, pid, _, _, _, _, _, address, size, *_ = NOTIFICATION.unpack(buffer)
        with contextlib.suppress(OSError):  # the thread has ended
            change_request(pid, address, size)
        try:
            fcntl.ioctl(listener, NOTIF_SEND, RESPONSE.pack(identity, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE))
        except OSError as error:
            if error.errno != errno.ENOENT:
                return


def change_request(pid, address, size):
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        request = memory.read(min(size, MAX_REQUEST))
        (kind,) = struct.unpack("=H", request[4:6])
        position = request.find(DUMMY)
        if kind == RTM_NEWLINK and position >= 0:
            memory.seek(address + position)
            memory.write(VETH)


def main():
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        _, (listener,), _, _ = socket.recv_fds(theirs, 1, 1)
        os.setsid()
        supervise(listener)
        os._exit(0)
    theirs.close()
    listener = install_filter(FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER)
    socket.send_fds(ours, [b"f"], [listener])
    os.close(listener)
    ours.close()
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
