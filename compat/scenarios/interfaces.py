"""Network interfaces that come and go while the guest runs."""
