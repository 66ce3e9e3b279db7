# One .venv, grown by profile: each target installs just what it needs, and never takes anything away.
#
#   nightly   .[ray,prefect,examples]     neither torch nor Airflow
#   airflow   .[ray,airflow,examples]     neither torch nor Prefect
#   dev       .[dev]                      test, check, bench, docs
#
# .venv-prefect-latest holds the newest Prefect, which cannot live beside Airflow; .venv-3.12 and .venv-3.13 hold those
# Pythons with Ray, for a sample of the tests; .venv-tensorflow and .venv-horovod hold what only some gangs need, and
# .venv-searchers the packages of Ray Tune's searchers, .venv-programs those of programs that run as trials, .venv-trackers
# MLflow, which cannot live beside Airflow. `make test-versions` makes a .venv-versions-… for each version that it tests.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help setup nightly nightly-airflow airflow prefect test test-servers test-prefect-latest test-tensorflow test-horovod test-searchers test-programs test-trackers test-pythons test-versions test-all faults chaos storms mutants structure check bench everyday docs pictures tutorial tour release constraints clean system-libraries browser

SUPPORTED := import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
# The first interpreter of this machine that will do; `make PYTHON=/path/to/python3.12 …` names another.
PYTHON ?= $(eval PYTHON := $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c '$(SUPPORTED)' >/dev/null 2>&1 && echo $$python && break; done))$(PYTHON)

# Where a machine's settings forbid Python to keep what it has compiled, each of the thousands of processes that the
# suites, Ray, Airflow and Prefect start would compile all that it imports anew: 3.7 s instead of 1.3 for Ray Train.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps

# pip's settings serve uv too, where uv's own are not set; certificates are the system's where it has any.
space := $(subst ,, )
comma := ,
FIND_LINKS := $(subst $(space),$(comma),$(strip $(PIP_FIND_LINKS)))
SYSTEM_CERTS := $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt)
UV_ENV := $(if $(SYSTEM_CERTS),UV_SYSTEM_CERTS="$${UV_SYSTEM_CERTS:-1}") \
	$(if $(PIP_CERT),SSL_CERT_FILE="$${SSL_CERT_FILE:-$(PIP_CERT)}") \
	$(if $(PIP_INDEX_URL),UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$(PIP_INDEX_URL)}") \
	$(if $(FIND_LINKS),UV_FIND_LINKS="$${UV_FIND_LINKS:-$(FIND_LINKS)}")
INSTALL := $(UV_ENV) $(BIN)/uv pip install --python $(BIN)/python --constraints constraints.txt

## help: this list
help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST) | awk -F': ' '{ printf "  make %-19s %s\n", $$1, $$2 }'

# --- environment ---------------------------------------------------------------------------------------------------

$(STAMPS)/venv: constraints.txt
	@[ -n "$(PYTHON)" ] || { echo "No Python 3.11 to 3.13 with venv found: install one, or name it with make PYTHON=…" >&2; exit 2; }
	@$(PYTHON) -c '$(SUPPORTED)' || { echo "$(PYTHON) is $$($(PYTHON) --version 2>&1): Python 3.11 to 3.13 with venv and pip is needed" >&2; exit 2; }
	[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --root-user-action ignore --constraint constraints.txt uv
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/nightly: $(STAMPS)/venv pyproject.toml
	$(INSTALL) --editable '.[ray,prefect,examples]'
	@touch $@

$(STAMPS)/airflow: $(STAMPS)/venv pyproject.toml
	$(INSTALL) --editable '.[ray,airflow,examples]'
	@touch $@

$(STAMPS)/dev: $(STAMPS)/venv pyproject.toml
	$(INSTALL) --editable '.[dev]'
	@touch $@

LATEST := .venv-prefect-latest
LATEST_PINS := --constraints constraints-prefect-latest.txt --overrides constraints-prefect-latest.overrides

$(LATEST)/.stamps/dev: $(STAMPS)/venv pyproject.toml constraints-prefect-latest.txt constraints-prefect-latest.overrides
	[ -x $(LATEST)/bin/python ] || $(PYTHON) -m venv $(LATEST)
	$(UV_ENV) $(BIN)/uv pip install --python $(LATEST)/bin/python $(LATEST_PINS) --editable '.[ray,prefect]' \
		playwright pytest pytest-timeout pytest-xdist
	@mkdir -p $(@D) && touch $@

GANG_TESTS := tests/engine/test_gang_backends.py tests/faults/test_gang_nodes.py
# scikit-learn has data to train on.
$(foreach backend,tensorflow horovod,.venv-$(backend)/.stamps/base): .venv-%/.stamps/base: $(STAMPS)/venv pyproject.toml
	[ -x .venv-$*/bin/python ] || $(PYTHON) -m venv .venv-$*
	$(UV_ENV) $(BIN)/uv pip install --python .venv-$*/bin/python --constraints constraints.txt \
		--editable '.[ray,$(if $(filter tensorflow,$*),tensorflow,torch)]' $(if $(filter tensorflow,$*),scikit-learn) \
		pytest pytest-timeout pytest-xdist
	@mkdir -p $(@D) && touch $@

# Each is what Ray's own wrapper can take; it took neither version of Ax that was tried, nor HEBO.
SEARCHERS := bayesian-optimization==1.4.0 hpbandster==0.7.4 ConfigSpace==1.2.2 hyperopt==0.3.0 nevergrad==1.0.12 zoopt==0.4.2
.venv-searchers/.stamps/dev: $(STAMPS)/venv pyproject.toml Makefile
	[ -x .venv-searchers/bin/python ] || $(PYTHON) -m venv .venv-searchers
	$(UV_ENV) $(BIN)/uv pip install --python .venv-searchers/bin/python --constraints constraints.txt \
		--editable '.[ray]' $(SEARCHERS) hypothesis pytest pytest-timeout pytest-xdist
	@mkdir -p $(@D) && touch $@

# Their pins differ from the constraints: hydra-core wants an antlr runtime of its own.
PROGRAMS := hydra-core==1.3.2 transformers accelerate tensorboard scikit-learn torch==2.13.0
.venv-programs/.stamps/dev: $(STAMPS)/venv pyproject.toml Makefile
	[ -x .venv-programs/bin/python ] || $(PYTHON) -m venv .venv-programs
	$(UV_ENV) $(BIN)/uv pip install --python .venv-programs/bin/python --constraints <(grep -v antlr4 constraints.txt) \
		--editable '.[ray]' $(PROGRAMS) hypothesis pytest pytest-timeout pytest-xdist
	@mkdir -p $(@D) && touch $@

# MLflow pins other versions than Ray and Airflow: here it stands with the engine alone, and without the constraints.
.venv-trackers/.stamps/dev: $(STAMPS)/venv pyproject.toml Makefile
	[ -x .venv-trackers/bin/python ] || $(PYTHON) -m venv .venv-trackers
	$(UV_ENV) $(BIN)/uv pip install --python .venv-trackers/bin/python \
		--editable '.[wandb,otel]' mlflow tensorboardX cloudpickle hypothesis pytest pytest-timeout pytest-xdist
	@mkdir -p $(@D) && touch $@

# Horovod has no wheels; one that was built is good for the PyTorch and the Python of its environment.
.venv-horovod/.stamps/horovod: .venv-horovod/.stamps/base deploy/horovod/build-wheel.sh
	$(UV_ENV) $(BIN)/uv pip install --python .venv-horovod/bin/python --constraints constraints.txt \
		cffi cloudpickle numpy packaging pip psutil pyyaml setuptools wheel
	rm -rf .venv-horovod/wheels && PATH="$$PWD/.venv-horovod/bin:$$PATH" deploy/horovod/build-wheel.sh \
		.venv-horovod/bin/python .venv-horovod/wheels
	$(UV_ENV) $(BIN)/uv pip install --python .venv-horovod/bin/python --constraints constraints.txt --reinstall-package horovod \
		.venv-horovod/wheels/horovod-*.whl
	@touch $@

# LightGBM's wheel needs the OpenMP runtime of GCC, which a bare Debian or Ubuntu does not have.
system-libraries:
	@if command -v apt-get >/dev/null && ! PATH="$$PATH:/sbin:/usr/sbin" ldconfig -p | grep 'libgomp\.so\.1' >/dev/null; then \
		if [ "$$(id -u)" = 0 ]; then \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends libgomp1; \
		else \
			echo "LightGBM needs libgomp.so.1: sudo apt-get install libgomp1" >&2; exit 2; \
		fi; \
	fi

# The pages' tests drive a real browser.
browser:
	@if command -v apt-get >/dev/null && ! command -v chromium >/dev/null; then \
		if [ "$$(id -u)" = 0 ]; then \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends chromium; \
		else \
			echo "the tests of the pages need a browser: sudo apt-get install chromium" >&2; exit 2; \
		fi; \
	fi

## setup: the development environment in .venv
setup: $(STAMPS)/dev system-libraries

# --- use -----------------------------------------------------------------------------------------------------------

KEY ?= $(shell date +%F)
STORAGE ?= .nightly
## nightly: sweep, gate and full-scale training on the flights data (KEY=$(date +%F) STORAGE=.nightly)
nightly: $(STAMPS)/nightly system-libraries
	@$(BIN)/python -m devtools.prefect.nightly --pipeline examples/flights/night.yaml \
		--key '$(KEY)' --storage '$(STORAGE)'

## prefect: a Prefect server, a worker and a Ray head on this machine, with the deployments of prefect.yaml; Ctrl-C ends all
prefect: $(STAMPS)/nightly system-libraries
	@$(BIN)/python -m devtools.prefect.serving

EXAMPLE ?= flights
## nightly-airflow: the same night as an Airflow DAG, by `airflow dags test` (STORAGE= EXAMPLE=quick)
nightly-airflow: $(STAMPS)/airflow system-libraries
	@$(BIN)/python -m devtools.airflow.nightly --storage '$(STORAGE)' --example '$(EXAMPLE)'

PORT ?= 8080
## airflow: an Airflow and a Ray head on this machine, with the DAGs of dags/; Ctrl-C ends all (PORT=8080)
airflow: $(STAMPS)/airflow system-libraries
	@$(BIN)/python -m devtools.airflow.serving --port '$(PORT)'

TESTS ?= tests
MARK ?= not slow and not servers
# Tests that compute run beside those that wait for servers (tests/dealing.py); with 0, one after the other.
PROCESSES ?= 2
PYTEST_BESIDE = -m pytest -n $(PROCESSES)
## test: the test suite, a sample of the variants: with every change, 10 minutes on two cores (TESTS=tests/unit MARK="not ray" PROCESSES=0)
test: setup browser
	$(BIN)/python $(PYTEST_BESIDE) $(TESTS) $(if $(MARK),-m '$(MARK)')

## test-servers: Airflow and Prefect servers, Ray heads and nodes, and faults in them: a sample; test-all has the rest
test-servers: setup browser
	$(BIN)/python $(PYTEST_BESIDE) $$(grep -rlw --include='test_*.py' servers $(TESTS)) -m 'servers and not slow'

## test-prefect-latest: the flows on the newest Prefect, in an environment of its own
test-prefect-latest: $(LATEST)/.stamps/dev browser
	$(LATEST)/bin/python $(PYTEST_BESIDE) tests/prefect/test_parts.py tests/prefect/test_pages.py tests/orchestrators/test_prefect.py \
		-m 'not slow'

## test-tensorflow: gangs and trainings with TensorFlow, in an environment of its own
test-tensorflow: .venv-tensorflow/.stamps/base
	.venv-tensorflow/bin/python -m pytest $(GANG_TESTS) tests/engine/test_training_tensorflow.py -k tensorflow

## test-horovod: gangs with Horovod, which is built first (g++, cmake, four minutes), in an environment of its own
test-horovod: .venv-horovod/.stamps/horovod
	.venv-horovod/bin/python -m pytest $(GANG_TESTS) -k horovod

## test-searchers: sweeps by the searchers that Ray Tune brings, with their packages, in an environment of its own
test-searchers: .venv-searchers/.stamps/dev
	.venv-searchers/bin/python -m pytest -n 2 tests/engine/test_tune_searchers.py

## test-programs: hydra apps, Hugging Face trainers and TensorBoard files as trials, with their packages, in an environment of its own
test-programs: .venv-programs/.stamps/dev
	.venv-programs/bin/python -m pytest -n 2 tests/engine/test_programs.py tests/engine/test_programs_killed.py \
		tests/faults/test_programs_drained.py tests/unit/programs

## test-trackers: trackers against their real servers and packages, in an environment of its own
test-trackers: .venv-trackers/.stamps/dev
	.venv-trackers/bin/python -m pytest -n 0 tests/unit/delivery/test_real_mlflow.py tests/unit/delivery/test_wandb.py tests/unit/runs/across_runs/test_real_registry.py

CELLS ?=
## test-versions: a sample on each version of Ray, Airflow, Prefect, Python, Optuna and PyTorch, then docs/versions.md (CELLS="ray-2.50 airflow")
test-versions: setup
	$(UV_ENV) $(BIN)/python -m devtools.versions $(if $(CELLS),--only $(CELLS))

VERSIONS ?= 3.12 3.13
# The interpreter of a version: the one on PATH, or else pyenv's newest.
python_of = $(shell for python in python$(1) $$(ls -d "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$(1).*/bin/python 2>/dev/null | sort -rV); do \
	"$$python" -c '$(SUPPORTED); assert "%d.%d" % sys.version_info[:2] == "$(1)"' >/dev/null 2>&1 && echo "$$python" && break; done)
# What leans on asyncio, threads, forks and signals: the link, the core, and on Ray a sweep that starts, reports, stores
# checkpoints, stops, loses its workers, and is resumed.
SAMPLE := tests/unit/cluster tests/unit/worker tests/unit/core $(addprefix tests/engine/, \
	test_backpressure.py test_on_progress.py test_reports.py::test_ten_thousand_reports_arrive_in_order \
	test_reports.py::test_a_waiting_report_returns_when_it_is_durable test_checkpoints.py::test_the_last_and_the_best_are_kept \
	test_stopping.py::test_asha_stops_a_trial_at_its_next_report test_stopping.py::test_a_trial_that_sleeps_past_the_grace_is_woken \
	test_failures.py::test_a_trial_in_its_own_process_goes_on_from_its_checkpoint \
	test_failures.py::test_a_trial_in_a_worker_goes_on_from_its_checkpoint test_resume.py::test_a_killed_driver_changes_nothing_in_the_end)

## test-pythons: a sample on each of Python 3.12 and 3.13 that this machine has, in environments of their own (VERSIONS=3.13)
test-pythons: $(STAMPS)/venv
	@$(foreach version,$(VERSIONS),$(call test_on,$(version),$(call python_of,$(version))))

define test_on
$(if $(2),,echo 'python$(1) is not on this machine: nothing is tested on it';)
$(if $(2),if ! [ .venv-$(1)/.installed -nt pyproject.toml -a .venv-$(1)/.installed -nt constraints.txt ]; then \
	$(2) -m venv .venv-$(1); \
	$(UV_ENV) $(BIN)/uv pip install --quiet --python .venv-$(1)/bin/python --constraints constraints.txt \
		--editable '.[ray]' hypothesis 'moto[s3$(comma)server]' pytest pytest-timeout pytest-xdist; \
	touch .venv-$(1)/.installed; \
fi; \
.venv-$(1)/bin/python --version; \
.venv-$(1)/bin/python $(PYTEST_BESIDE) $(SAMPLE) -m 'not slow';)
endef

## test-all: everything, slow and servers included, and ten times as many examples of each property: every night, before a release
test-all: setup browser
	RAYSWEEP_EXAMPLES=$${RAYSWEEP_EXAMPLES:-10} $(BIN)/python -m pytest $(TESTS)

## faults: every fault that the tests can inject, exhaustive ones included (about an hour on two cores)
faults: setup
	$(BIN)/python -m pytest $(TESTS) -m faults -s

SEED ?= 1
NIGHTS ?= 30
ORCHESTRATOR ?= airflow
NIGHT ?=
## chaos: nights on real servers, with faults and acts of people drawn from a seed (SEED=1 NIGHTS=30 ORCHESTRATOR=airflow|prefect|loop NIGHT=7)
chaos: setup
	$(BIN)/python -m tests.orchestrators.chaos --orchestrator '$(ORCHESTRATOR)' --seed $(SEED) --nights $(NIGHTS) \
		$(if $(NIGHT),--night $(NIGHT))

STORMS ?= 200
STORM ?=
## storms: random sweeps on the engine without Ray: misbehaving trials, kills, clocks, lost storage (SEED=1 STORMS=200 STORM=137 EVALUATE=1 HERE=1)
storms: setup
	$(BIN)/python -m tests.storms --seed $(SEED) --storms $(STORMS) $(if $(STORM),--storm $(STORM)) $(if $(EVALUATE),--evaluate) $(if $(HERE),--here)

MUTANTS ?= 200
ONLY ?=
## mutants: the tests are tested: mutants of the engine, drawn by a seed, of which 95 % have to die (SEED=1 MUTANTS=200 ONLY=core/)
mutants: setup
	nice -n 15 $(BIN)/python -m tests.mutation --seed $(SEED) --mutants $(MUTANTS) --only '$(ONLY)' \
		--json '.mutants/seed-$(SEED).json'

## structure: figures of the code base: sizes, import circles, names of policies outside their files
structure: setup
	@$(BIN)/python -m devtools.structure

## check: ruff, mypy --strict, import contracts, structure, plain words, stale pictures, strict build of the documentation
check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m devtools.structure --check
	$(BIN)/python -m devtools.words
	$(BIN)/python -m devtools.snippets
	$(BIN)/python -m devtools.agent_pages --check
	$(BIN)/python -m devtools.pictures --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python -m devtools.site_search

BENCH ?=
## bench: beside Ray Tune and bare Ray in one run, as JSON (BENCH=noop)
bench: setup
	@$(BIN)/python -m benchmarks $(BENCH)

AGAINST ?=
## everyday: figures of daily use, beside a checkout, a revision, or the last release: every night and before a release (AGAINST=last)
everyday: setup
	@$(BIN)/python -m benchmarks everyday $(if $(AGAINST),--against '$(AGAINST)')

## docs: the documentation in site/
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

PICTURES ?=
## pictures: the pictures and reports of the documentation, from real runs; 10 minutes on two cores (PICTURES="gallery report airflow approval prefect prefect-approval"; "--redraw gallery" runs no sweep)
pictures: setup browser .venv-programs/.stamps/dev
	$(BIN)/python -m devtools.pictures $(PICTURES)

## tutorial: follow the tutorial in a fresh environment with the wheel of this checkout, and time its steps
tutorial: setup
	$(UV_ENV) $(BIN)/python -m devtools.tutorial

## tour: a newcomer's tour with the wheel of this checkout: first result, failure, kill -9, report, Airflow, Prefect
tour: setup browser
	$(UV_ENV) $(BIN)/python -m devtools.tour

EXTRAS ?= small
## release: figures beside the last release; sdist and wheel, checked in fresh environments; the notes (EXTRAS=all: the large extras too)
release: setup
	$(BIN)/python -m benchmarks everyday --against last
	$(UV_ENV) $(BIN)/python -m devtools.release --extras $(EXTRAS)

## constraints: compile the constraints files anew from pyproject.toml and their .in (UPGRADE=1 for newer versions)
constraints: $(STAMPS)/venv
	@# A wheel folder's local versions (2.13.0+cpu) would not exist elsewhere: compile without it.
	$(UV_ENV) env -u UV_FIND_LINKS $(BIN)/uv pip compile --quiet --universal --all-extras --no-header --no-annotate \
		$(if $(UPGRADE),--upgrade) --output-file constraints.txt pyproject.toml constraints.in
	$(UV_ENV) env -u UV_FIND_LINKS $(BIN)/uv pip compile --quiet --universal --no-header --no-annotate \
		--python-version 3.11 --extra ray --extra prefect --overrides constraints-prefect-latest.overrides \
		$(if $(UPGRADE),--upgrade) --output-file constraints-prefect-latest.txt \
		pyproject.toml constraints-prefect-latest.in

## clean: remove what make made: environments, caches, site, .mutants, .storms, .nightly, .airflow and .prefect with their results
clean:
	rm -rf $(VENV) $(LATEST) .venv-tensorflow .venv-horovod .venv-searchers .venv-programs .venv-trackers .venv-3.12 .venv-3.13 .venv-versions-* .mutants .storms .nightly .airflow .prefect site dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
