"""The tiny guest is a disk that a BIOS boots."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from kit import tiny_guest  # noqa: E402


class TinyGuest(unittest.TestCase):
    def test_the_bios_takes_it_for_a_boot_sector(self):
        disk = tiny_guest.disk()
        self.assertEqual(len(disk), tiny_guest.DISK_BYTES)
        self.assertEqual(disk[510:512], b"\x55\xaa")

    def test_the_code_knows_where_its_text_is(self):
        load_si = tiny_guest.CODE.index(b"\xbe")
        address = int.from_bytes(tiny_guest.CODE[load_si + 1 : load_si + 3], "little")
        text = tiny_guest.disk()[address - tiny_guest.LOAD_ADDRESS :]
        self.assertTrue(text.startswith(tiny_guest.UP.encode() + b"\r\n\0"))


if __name__ == "__main__":
    unittest.main()
