"""A seccomp filter for this process and all that it becomes."""

import ctypes
import struct

SYS_SECCOMP = 317  # x86-64
ARCH_X86_64 = 0xC000003E
SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER = 1, 8
SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO, SECCOMP_RET_USER_NOTIF = 0x7FFF0000, 0x00050000, 0x7FC00000

# BPF on struct seccomp_data: number at 0, architecture at 4, the arguments from 16 on.
LOAD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06


def filter_of(number, tests, action):
    """`action` for the calls of this number that pass the tests, each of an argument, a value, and whether they are to be equal
    in their lower 32 bits. Other calls are let through."""
    arguments = [(16 + 8 * argument, value, equal) for argument, value, equal in tests]
    tests = [(4, ARCH_X86_64, True), (0, number, True), *arguments]
    program = []
    for left, (offset, value, equal) in zip(reversed(range(len(tests))), tests, strict=True):
        past = 2 * left + 1  # the other tests, and the action
        program += [(LOAD, 0, 0, offset), (JUMP_EQUAL, *((0, past) if equal else (past, 0)), value)]
    return [*program, (RETURN, 0, 0, action), (RETURN, 0, 0, SECCOMP_RET_ALLOW)]


def install_filter(instructions, flags=0):
    """With SECCOMP_FILTER_FLAG_NEW_LISTENER it returns the file descriptor on which the kernel tells of calls."""
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("=HxxxxxxQ", len(instructions), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(SYS_SECCOMP, SECCOMP_SET_MODE_FILTER, flags, ctypes.c_char_p(program))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return fd
