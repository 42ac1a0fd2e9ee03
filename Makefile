# make study   the whole study in params.yaml, from raw text to results table
# make test    the tests, but for those that take minutes: make test-slow
# make lint    style, types, and Snakemake's own checks
# make ablations   the paper's ablations on that study, as queued experiments; one table: make ablations TABLE=table5
# make bench   every claim of speed beside its peer; one of them: make bench BENCH=encode
#
# Each makes .venv first where it has to. `make study TORCH=installed` uses a torch that this machine's python3 has.

SHELL := /bin/bash
# the machine's own python3, which has pip, even where .venv is activated
PYTHON := $(or $(PYTHON),$(shell PATH="$(subst $(CURDIR)/.venv/bin:,,$(PATH))" && command -v python3))
CORES ?= $(shell nproc)
VENV := .venv
INSTALL := $(PYTHON) -m pip --python $(VENV)/bin/python install --disable-pip-version-check
# layers without torch, and the bridge between the engines
PACKAGES := common params sources task_sources corpus wikipedia books tokenizer tokenizer_training examples statistics \
            evaluation report word_vectors tools/planning tools/doctor tools/ablations
TYPED := pipeline_src/*.py $(addprefix pipeline_src/,$(PACKAGES)) \
         pipeline_src/tasks/files/spec.py workflow/*.py benchmarks/*.py

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export XDG_CACHE_HOME ?= $(CURDIR)/.snakemake/cache

ifeq ($(TORCH),installed)
SYSTEM := --system-site-packages
SKIP := ^torch==|^-r
else
SKIP := ^-r
endif

.PHONY: study test test-slow lint ablations bench identity

study: $(VENV)/study-installed identity
	@mkdir -p $(XDG_CACHE_HOME)
	snakemake all --cores $(CORES) --quiet rules
	@python -m pipeline_src table

test: $(VENV)/test-installed
	@mkdir -p $(XDG_CACHE_HOME)
	pytest -n $(CORES) --dist worksteal -m "not slow"

# more workers than cores: the tests on Slurm mostly wait
test-slow: $(VENV)/test-installed
	@mkdir -p $(XDG_CACHE_HOME)
	pytest -n $$(($(CORES) + 2)) --dist loadfile --no-loadscope-reorder -m slow

lint: $(VENV)/test-installed
	@mkdir -p $(XDG_CACHE_HOME)
	ruff check .
	ruff format --check .
	snakefmt --check --line-length 120 workflow/Snakefile workflow/rules
	python workflow/code_deps.py
	snakemake --lint
	mypy $(TYPED)

# the study itself first: its corpus serves every experiment
ablations: study
	python -m pipeline_src ablations $(TABLE) --jobs $(or $(JOBS),2)

bench: $(VENV)/bench-installed
	python -m benchmarks $(BENCH)

# `dvc exp run` keeps experiments as git commits and stops where git knows no name; one for this clone alone is given.
identity:
	@if git rev-parse --git-dir > /dev/null 2>&1 && ! git config user.email > /dev/null; then \
	  git config user.name "$$(id -un)" && git config user.email "$$(id -un)@localhost" && \
	  echo "git knew no name for this clone: set to $$(id -un); change it with git config user.name and user.email"; \
	fi

$(VENV)/bin/python:
	$(PYTHON) -m venv --without-pip $(SYSTEM) $(VENV)

$(VENV)/study-installed: requirements.lock | $(VENV)/bin/python
	grep -hvE '$(SKIP)' requirements.lock > $(VENV)/pins.txt
	$(INSTALL) -r $(VENV)/pins.txt
	@touch $@

$(VENV)/test-installed: requirements.lock requirements-test.lock | $(VENV)/bin/python
	grep -hvE '$(SKIP)' requirements.lock requirements-test.lock > $(VENV)/pins.txt
	$(INSTALL) -r $(VENV)/pins.txt
	@touch $@ $(VENV)/study-installed

$(VENV)/bench-installed: requirements.lock requirements-test.lock requirements-bench.lock | $(VENV)/bin/python
	grep -hvE '$(SKIP)' requirements.lock requirements-test.lock requirements-bench.lock > $(VENV)/pins.txt
	$(INSTALL) -r $(VENV)/pins.txt
	@touch $@ $(VENV)/study-installed $(VENV)/test-installed
