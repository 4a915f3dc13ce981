"""A guest of one boot sector that obeys the power button at once: for scenarios that need a guest and nothing in it.

It is up as soon as its firmware is, and needs hardly any processor time.
"""

UP = "tiny guest is up"  # written to the serial console 18 times a second
LOAD_ADDRESS = 0x7C00
SECTOR, DISK_BYTES = 512, 1 << 20
# 16-bit code. 0x600 is the base of q35's ACPI power management, as SeaBIOS sets it: status, enable
# (+2), control (+4).
CODE = bytes.fromhex(
    "31c0 8ed8"  # xor ax, ax; mov ds, ax
    "ba0206 b80001 ef"  # enable the event "power button", bit 8
    # again:
    "fb"  # sti
    "be2d7c"  # mov si, text
    # character:
    "ac 84c0 7406"  # lodsb; test al, al; jz written
    "baf803 ee ebf5"  # out 0x3f8, al; jmp character
    # written:
    "f4"  # hlt, until the timer's next interrupt
    "ba0006 ed f6c401 74e7"  # in ax, status; test bit 8; jz again
    "ba0406 b80020 ef"  # control: sleep now, type 0 (S5: off)
    "ebfe"  # jmp to itself
)


def disk():
    """The disk's content."""
    sector = CODE + f"{UP}\r\n\0".encode()
    return sector.ljust(SECTOR - 2, b"\0") + b"\x55\xaa" + bytes(DISK_BYTES - SECTOR)


def write(path):
    with open(path, "wb") as f:
        f.write(disk())
    return path
