# Everything starts here; "make help" lists what there is.

PREFIX ?= /usr
CARGO ?= cargo
GUEST := target/test-guest/guest.img

# What "make run" boots: a manifest, and other options of "launcherctl run".
ARGS ?= examples/vmi.yaml

# rustup's place, for a shell that was open before it was installed.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

# Each target is a few heavy jobs in a given order.
.NOTPARALLEL:
.DEFAULT_GOAL := build
.PHONY: help setup build run test guest lint bench install clean

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: ## install what this machine lacks, with its own packages
	@scripts/setup

build: ## both executables, optimized
	$(CARGO) build --release

# Unless ARGS says which disk to use, it is our test guest's, of which we know when it is up. Emulation takes 7 seconds
# for that and works everywhere, even where /dev/kvm exists but does not work; KVM=1 uses /dev/kvm.
run: setup build guest ## boot a VM here, without a cluster (ARGS="examples/efi.yaml" for another)
	target/release/pod-tools launcherctl run $(ARGS) $(if $(KVM),,--emulate) \
		$(if $(findstring --disk,$(ARGS)),,--disk rootdisk=$(GUEST) --until "virt-launcher test guest is up")

test: setup guest ## all tests; they boot real guests, so this takes minutes
	$(CARGO) test --workspace $(TESTARGS)

guest: ## the small Linux that the tests boot, see docs/test-guest.md
	@scripts/test-guest $(GUEST)

lint: ## formatting, clippy; dependencies where cargo-deny or cargo-audit is installed
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --no-default-features --bin pod-tools -- -D warnings
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny check; fi
	@if command -v cargo-audit >/dev/null; then $(CARGO) audit; fi

bench: setup guest ## measurements
	$(CARGO) bench
	@scripts/measure-sidecars
	@scripts/measure-idle

# pod-tools itself says which names it answers to, so that no link leads nowhere.
install: build ## executables and their links, below DESTDIR and PREFIX
	install -D -t $(DESTDIR)$(PREFIX)/bin target/release/virt-launcher target/release/pod-tools
	@names=$$(target/release/pod-tools --list) && for name in $$names; do \
		ln -sfn pod-tools $(DESTDIR)$(PREFIX)/bin/$$name || exit; \
	done

clean: ## all that was built here, the test guest too
	$(CARGO) clean
