# Everything starts here; "make help" lists what there is.

PREFIX ?= /usr
CARGO ?= cargo
GUEST := target/test-guest/guest.img

# Where the programs are that "make install" lays out; without BINARIES they are built.
PROGRAMS := $(or $(BINARIES),target/programs)
BINDIR = $(DESTDIR)$(PREFIX)/bin
SHAREDIR = $(DESTDIR)$(PREFIX)/share

# What "make run" boots: a manifest, and other options of "launcherctl run".
ARGS ?= examples/vmi.yaml

# cargo-deny, and rustup's directory for a shell that was open before it was installed.
export PATH := $(CURDIR)/target/lint/bin:$(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

# Programs do not contain the directories that they were built in: the same commit gives the same
# bytes anywhere.
REMAPPED := --remap-path-prefix=$(CURDIR)=/src --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo
build programs cel-evaluator microbench: export RUSTFLAGS := $(RUSTFLAGS) $(REMAPPED)

# Each target is a few heavy jobs in a given order.
.NOTPARALLEL:
.DEFAULT_GOAL := build
.PHONY: help setup build run test torture test-image guest lint bench bench-density bench-migration scrape soak microbench compat compat-cluster programs cel-evaluator install image image-tree release release-check clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: ## install what this machine lacks, with its own packages
	@scripts/setup

build: ## the executables, optimized
	$(CARGO) build --locked --release
	$(CARGO) build --locked --release -p virt-launcher-cel-evaluator

# Unless ARGS says which disk to use, it is the test guest's, which prints a line when it is up.
# Emulation takes 5 seconds for that and works everywhere, even where /dev/kvm exists but does not
# work; KVM=1 uses /dev/kvm. "make test" uses the same build: an optimized one takes three times as
# long.
run: setup guest ## boot a VM here, without a cluster (ARGS="examples/efi.yaml" for another)
	$(CARGO) build --locked
	target/debug/pod-tools launcherctl run $(ARGS) $(if $(KVM),,--emulate) \
		$(if $(findstring --disk,$(ARGS)),,--disk rootdisk=$(GUEST) --until "virt-launcher test guest is up")

test: setup $(if $(QUICK),,guest) ## all tests (QUICK=1: those that boot no guests)
	@CARGO=$(CARGO) QUICK=$(QUICK) scripts/test $(TESTARGS)

torture: setup guest ## one guest under many kills of its launcher and daemon (KILLS=500)
	KILLS=$(or $(KILLS),500) $(CARGO) test --locked --workspace --test e2e -- --ignored --nocapture torture

test-image: setup image-tree ## the tests of the launcher image's content, as root
	$(CARGO) test --locked --test image

guest: ## the guests that the tests boot, see docs/test-guest.md
	@scripts/test-guest $(GUEST)

# What code of the product must not do, and tests may: they end by a panic, and wait for the
# programs that they run.
IN_TESTS := $(addprefix -A clippy::,unwrap_used expect_used panic indexing_slicing string_slice \
	disallowed_methods arithmetic_side_effects cast_possible_truncation cast_possible_wrap \
	cast_sign_loss too_many_lines)

lint: ## formatting, names of types, clippy, dependencies and their known vulnerabilities (deny.toml)
	@scripts/setup --lint
	@scripts/check-type-names
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --lib --bins -- -D warnings
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings $(IN_TESTS)
	$(CARGO) clippy --locked --workspace --test e2e --test image -- -D warnings $(IN_TESTS)
	$(CARGO) clippy --locked --no-default-features --features tools --bins -- -D warnings
	$(CARGO) deny --locked check bans licenses sources
	@if timeout 60 $(CARGO) deny --locked fetch db; then $(CARGO) deny --locked check advisories; \
		else echo "lint: RUSTSEC's advisories cannot be fetched here, and are not checked" >&2; fi

# Measurements in pod-shaped containers, of a release build, by the test program of "make test"; so
# as root.
RELEASED = PROGRAMS=$(CURDIR)/target/release $(CARGO) test --locked --test e2e -- --ignored --nocapture --exact

bench: setup build guest ## what a pod costs (RUNS=5, PODS=100, DISKS=100, SIDECARS=20; REFERENCE=DIR: in turns with its launcher)
	$(CARGO) build --locked --examples
	RUNS=$(RUNS) PODS=$(PODS) DISKS=$(DISKS) SIDECARS=$(SIDECARS) REFERENCE=$(REFERENCE) $(RELEASED) measure::bench::bench

bench-density: setup build guest ## what a pod takes beside its guest's memory (RUNS=3, MINUTES=1 of rest, LIMIT_MIB: of each pod; REFERENCE=DIR: in turns with its launcher)
	RUNS=$(RUNS) MINUTES=$(MINUTES) LIMIT_MIB=$(LIMIT_MIB) REFERENCE=$(REFERENCE) $(RELEASED) measure::density::density

bench-migration: setup build guest ## a live migration by the launcher and by virsh, in turns (RUNS=5)
	RUNS=$(RUNS) $(RELEASED) measure::migration::bench

scrape: setup build guest ## latency of GetDomainStats, idle and during a backup (CALLS=1000, SCRAPES=20; REFERENCE=DIR: its launcher too)
	CALLS=$(CALLS) SCRAPES=$(SCRAPES) REFERENCE=$(REFERENCE) $(RELEASED) measure::scrape::scrape

soak: setup build guest ## a pod under load (MINUTES=5): what it takes up must be flat at the end
	MINUTES=$(MINUTES) $(RELEASED) measure::soak::soak

microbench: setup guest ## the conversion alone, sidecars' part of a start, an idle launcher
	$(CARGO) bench --locked
	@scripts/measure-sidecars
	@scripts/measure-idle

# HANDLER_BIN names the folder with virt-handler and virt-chroot; without it, or on a machine that
# lacks something else, this says what is missing.
compat: ## KubeVirt's own virt-handler against this launcher, see compat/README.md (HANDLER_BIN=DIR SCENARIOS="…")
	@compat/run --check
	@$(MAKE) --no-print-directory guest
	$(MAKE) --no-print-directory install DESTDIR=target/compat/image PREFIX=/usr MANUALS=no
	compat/run --launcher container/compat.toml $(SCENARIOS)
	compat/compare --differences-pass target/compat/results/virt-launcher-rust

# CLUSTER_DIR names the folder with Kubernetes' and KubeVirt's programs; without it, this says what
# is missing.
compat-cluster: ## a real cluster with this launcher and KubeVirt's, see compat/README.md (CLUSTER_DIR=DIR SCENARIOS="…")
	@compat/run-cluster check
	@$(MAKE) --no-print-directory guest
	BINARIES=none scripts/image-tree
	$(MAKE) --no-print-directory install DESTDIR=target/compat/image PREFIX=/usr MANUALS=no
	compat/run-cluster up --launcher compat/launchers/kubevirt.toml --launcher container/compat.toml
	compat/run-cluster run $(SCENARIOS); compat/run-cluster down
	compat/compare --differences-pass $(CLUSTER_DIR)/results/virt-launcher-rust --reference $(CLUSTER_DIR)/results/kubevirt-v1.9.0 \
		--junit $(CLUSTER_DIR)/results/junit.xml

# What is installed. container-disk is copied into foreign images, so pod-tools is linked statically
# there; an explicit target keeps that flag away from build scripts and proc macros.
programs: cel-evaluator
	$(CARGO) build --release --locked --no-default-features --features libvirt --bin virt-launcher
	host=$$(rustc -vV | sed -n 's/^host: //p') && \
		RUSTFLAGS="$$RUSTFLAGS -C target-feature=+crt-static" \
		$(CARGO) build --release --locked --no-default-features --features tools --target $$host && \
		install -C -D -t $(PROGRAMS) target/release/virt-launcher target/release/cel-evaluator \
			target/$$host/release/pod-tools target/$$host/release/virt-launcher-monitor

cel-evaluator:
	$(CARGO) build --release --locked -p virt-launcher-cel-evaluator

# pod-tools itself says which names it answers to, so that no link leads nowhere. DYNAMIC=yes is for
# a tree that no other image takes container-disk from, such as that of the tests.
install: $(if $(BINARIES),,programs) ## executables, links, seccomp profile, man pages and completions, below DESTDIR and PREFIX (BINARIES=DIR: those of DIR; MANUALS=no)
	$(if $(DYNAMIC),,@scripts/check-static $(PROGRAMS)/pod-tools)
	install -C -D -t $(BINDIR) $(PROGRAMS)/virt-launcher $(PROGRAMS)/cel-evaluator $(PROGRAMS)/pod-tools \
		$(PROGRAMS)/virt-launcher-monitor
	@names=$$($(PROGRAMS)/pod-tools --list) && for name in $$names; do \
		ln -sfn pod-tools $(BINDIR)/$$name || exit; \
	done
	install -C -D -m 0644 -t $(SHAREDIR)/virt-launcher container/seccomp.json
	$(if $(filter no,$(MANUALS)),,@ctl="$(PROGRAMS)/pod-tools launcherctl" && \
	put() { install -C -D -m 0644 -T /dev/stdin "$(SHAREDIR)/$$1"; } && \
		mkdir -p "$(SHAREDIR)/man/man1" && $$ctl manual "$(SHAREDIR)/man/man1" && \
		$$ctl completion bash | put bash-completion/completions/launcherctl && \
		$$ctl completion zsh | put zsh/site-functions/_launcherctl && \
		$$ctl completion fish | put fish/vendor_completions.d/launcherctl.fish)

image-tree: ## the launcher image's files below target/image-tree, as root; see docs/image.md
	@scripts/image-tree

# Without a tree, everything is done inside a container: that needs no Debian and no root, but takes
# longer.
image: ## the launcher image, by buildah or podman (TREE=target/image-tree: of a tree that is built)
	$(or $(shell command -v buildah || command -v podman),$(error neither buildah nor podman is there)) build \
		$(if $(TREE),--build-context tree=$(TREE)) -t $(or $(IMAGE),virt-launcher) .

release: ## archives, SBOM, checksums and signature below target/dist, as root (KEY=FILE: of ssh-keygen)
	$(if $(KEY),,$(error name the key that signs: KEY=FILE; "ssh-keygen -t ed25519" makes one))
	@[ -z "$$(git status --porcelain)" ] || { echo "release: there are changes that no commit has" >&2; exit 1; }
	@$(MAKE) --no-print-directory image-tree
	@scripts/release "$(KEY)"

release-check: image-tree ## programs and image, built again in another directory, are the same bytes; as root
	@scripts/check-reproducible

clean: ## all that was built here, the test guest too
	$(CARGO) clean
