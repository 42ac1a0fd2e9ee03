# make study   the whole study in params.yaml, from raw text to results table
# make install only what that needs, into .venv: on a cluster's login node
# make test    the tests, except those that take minutes: make test-slow
# make lint    style, types, and Snakemake's own checks; make format fixes the style
# make ablations   the paper's ablations on that study, as queued experiments; one table: make ablations TABLE=table5
# make release MODEL=models/pretrained/phase2   a model as a folder for a hub, with card, citation and checksums; OUT= names it
# make bench   measure every claim of speed against its peer; one of them: make bench BENCH=encode
# make docs    the manual and the docstrings as a site in site/html
# make newest  today's DVC, Snakemake, torch and transformers into .venv, whatever the locks say
# make lock    write the locks after a change of pyproject.toml; make lock UPGRADE=1 takes newer versions
#
# Each creates .venv first if it is missing, with uv: the one on the PATH, else one that pip installs into .venv/tools,
# else pip alone (UV=no asks for that). Python 3.11 to 3.14: make study PYTHON=/path/to/python3.
#
#   TORCH=            the version in torch.lock, by pip and its configuration; on Linux x86-64 a CUDA build
#   TORCH=cpu         the CPU build; also auto (what this machine's driver supports), cu130 ...: uv's --torch-backend
#   TORCH=installed   the torch (2.11 or newer) of this machine's python3

SHELL := /bin/bash
# the machine's own python3, which has pip, even where .venv is activated
PYTHON := $(or $(PYTHON),$(shell PATH="$(subst $(CURDIR)/.venv/bin:,,$(PATH))" && command -v python3))
CORES ?= $(shell nproc 2> /dev/null || sysctl -n hw.ncpu)
VENV := .venv
PIP := $(PYTHON) -m pip --python $(VENV)/bin/python --disable-pip-version-check
# packages that mypy checks
PACKAGES := base engine study sources text tokenizer tasks examples finetune evaluate report
TYPED := pipeline_src/*.py pipeline_src/tools/doctor.py pipeline_src/tools/plan.py pipeline_src/tools/ablations.py $(addprefix pipeline_src/,$(PACKAGES)) \
         pipeline_src/family workflow/*.py benchmarks/*.py tests/stress/*.py

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# uv installs no bytecode by itself. Where Python writes none (a read-only image, PYTHONDONTWRITEBYTECODE), each start of
# Snakemake would compile for 4 seconds, and each of DVC for one.
export UV_COMPILE_BYTECODE := 1
# caches of uv, pip and Snakemake go here if the home folder cannot be written
ifneq ($(shell mkdir -p "$${XDG_CACHE_HOME:-$$HOME/.cache}" 2> /dev/null && test -w "$${XDG_CACHE_HOME:-$$HOME/.cache}" && echo yes),yes)
export XDG_CACHE_HOME := $(CURDIR)/.snakemake/cache
endif

.PHONY: install study test test-slow lint format ablations release bench docs lock newest identity

install: identity $(VENV)/study-installed

study: install
	snakemake all --cores $(CORES) --quiet rules
	@python -m pipeline_src results

test: $(VENV)/test-installed
	pytest -n $(CORES) --dist worksteal -m "not slow"

# more workers than cores: the tests on Slurm mostly wait
test-slow: $(VENV)/test-installed
	pytest -n $$(($(CORES) + 2)) --dist loadfile --no-loadscope-reorder -m slow

lint: $(VENV)/test-installed
	ruff check .
	ruff format --check .
	snakefmt --check --line-length 120 workflow/Snakefile
	snakemake --lint
	mypy $(TYPED)

format: $(VENV)/test-installed
	ruff check --fix .
	ruff format .
	snakefmt --line-length 120 workflow/Snakefile

# The study itself first: its corpus serves every experiment. The second round has those that reuse a pretraining of the
# first, and what has failed. What fails again or was not waited for is shown as such,
# and make fails; the same command continues.
ABLATE = dvc queue remove --failed -q && python -m pipeline_src ablations $(TABLE) --queue && \
  dvc exp run --run-all --jobs $(or $(JOBS),2)

ablations: study
	$(ABLATE)
	$(ABLATE)
	@dvc queue status
	@! dvc queue status | grep -qE '(Failed|Queued|Running) *$$'

release: $(if $(MODEL),install)
	@test -n "$(MODEL)" || { echo "error: no model; name its folder: make release MODEL=models/pretrained/phase2"; exit 1; }
	@python -m pipeline_src release $(MODEL) $(or $(OUT),release)

bench: $(VENV)/bench-installed
	python -m benchmarks $(BENCH)

# Pages are docs/ and the files in the root that it links to, and one for each folder of the package. A dead link is an error.
# The site links to the clone's remote; make docs REPOSITORY=https://... names another address.
PAGES := site/pages
REPOSITORY ?= $(shell git remote get-url origin 2> /dev/null | sed -nE \
  -e 's,^(https?|ssh)://([^@/]*@)?([^/:]+)(:[0-9]+)?/,https://\3/,p' -e 's,^[^@/:]+@([^:/]+):,https://\1/,p' | sed 's,\.git$$,,')
docs: $(VENV)/docs-installed
	rm -rf site && mkdir -p site && cp -r docs $(PAGES) && mkdir $(PAGES)/api
	cp CONTRIBUTING.md CHANGELOG.md LICENSE $(PAGES) && cp README.md $(PAGES)/index.md && cp catalogue/README.md $(PAGES)/catalogue.md
	sed -i.bak -E 's#\]\((\.\./)?docs/#](#g; s#\]\(\.\./catalogue/README#](catalogue#g; s#\]\(\.\./#](#g' $(PAGES)/*.md
	rm $(PAGES)/*.bak
	for folder in pipeline_src/*/__init__.py; do name=$$(basename $$(dirname $$folder)); \
	  printf '# pipeline_src.%s\n\n::: pipeline_src.%s\n' $$name $$name > $(PAGES)/api/$$name.md; done
	cp zensical.toml site.toml && echo '$(if $(REPOSITORY),repo_url = "$(REPOSITORY)")' >> site.toml
	zensical build --clean --strict --config-file site.toml; status=$$?; rm site.toml; exit $$status

# DVC needs a git repository, and `dvc exp run`, which keeps experiments as commits, a name; one for this clone is given.
identity:
	@git rev-parse --git-dir > /dev/null 2>&1 || { echo "error: $(CURDIR) is no git repository, which DVC needs;" \
	  "use git clone, or here: git init && git add -A && git commit -m start"; exit 1; }
	@if ! git config user.email > /dev/null; then \
	  git config user.name "$$(id -un)" && git config user.email "$$(id -un)@localhost" && \
	  echo "git knew no name for this clone: set to $$(id -un); change it with git config user.name and user.email"; \
	fi

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' || \
	  { echo "error: $(PYTHON) is not Python 3.11 to 3.14; name one: make study PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv --without-pip $(if $(filter installed,$(TORCH)),--system-site-packages) $(VENV)

# The file holds uv's path, or nothing if there is none. uv is installed beside the environment, not into it.
$(VENV)/uv: | $(VENV)/bin/python
ifeq ($(UV),no)
	@: > $@
else
	@command -v uv > $@ || { $(PYTHON) -m pip install --disable-pip-version-check -q --target $(VENV)/tools uv && \
	  echo "$(CURDIR)/$(VENV)/tools/bin/uv" > $@; } || { echo "uv cannot be installed here; pip installs"; : > $@; }
endif

# Torch first and alone: which build is right depends on the machine. By pip, whose configuration may name a site's
# mirrors and local wheels, which uv does not read.
$(VENV)/torch-installed: torch.lock | $(VENV)/uv
ifeq ($(TORCH),)
	$(PIP) install -q -r torch.lock
else ifneq ($(TORCH),installed)
	@test -s $(VENV)/uv || { echo "error: TORCH=$(TORCH) needs uv; without it, make TORCH=installed"; exit 1; }
	"$$(cat $(VENV)/uv)" pip install --python $(VENV)/bin/python --torch-backend $(TORCH) -r torch.lock
else
	@$(VENV)/bin/python -c 'import torch' 2> /dev/null || { echo "error: TORCH=installed, but $(VENV) finds no torch; name" \
	  "a python3 that has it, and make the environment again: rm -r $(VENV) && make study TORCH=installed PYTHON=/path/to/python3"; exit 1; }
endif
	@touch $@

# A lock lists every package, so nothing is resolved here (--no-deps) and torch stays as it is.
$(VENV)/%-installed: locks/%.lock | $(VENV)/torch-installed
	@if [ -s $(VENV)/uv ]; then set -x; "$$(cat $(VENV)/uv)" pip install -q --python $(VENV)/bin/python --no-deps -r $<; \
	else set -x; $(PIP) install -q --no-deps -r $<; fi
	@touch $@ $(if $(filter test bench docs,$*),$(VENV)/study-installed) $(if $(filter bench,$*),$(VENV)/test-installed)

# ---- for maintainers ----
# The override keeps torch and what only torch needs out of the locks; each lock extends the one before it. A version is
# taken a week after its upload, as in .github/dependabot.yml: most malicious ones are found and removed by then.
COMPILE = "$$(cat $(VENV)/uv)" pip compile -q pyproject.toml --universal --python-version 3.11 --no-annotate --no-header \
  --no-emit-index-url --exclude-newer '7 days' $(if $(UPGRADE),--upgrade) --override <(echo 'torch; python_version < "3"')

# The engines, torch and transformers as published today, whatever the locks say; `make test` then runs with them.
newest: $(VENV)/test-installed
	"$$(cat $(VENV)/uv)" pip install --python $(VENV)/bin/python --upgrade $(if $(TORCH),--torch-backend $(TORCH)) \
	  dvc snakemake torch transformers

lock: | $(VENV)/test-installed
	$(COMPILE) -o locks/study.lock
	$(COMPILE) --group test -c locks/study.lock -o locks/test.lock
	$(COMPILE) --group test --group bench -c locks/test.lock -o locks/bench.lock
	$(COMPILE) --group docs -c locks/bench.lock -o locks/docs.lock
	$(COMPILE) --group test -c locks/test.lock --format pylock.toml -o $(VENV)/pylock.toml
	python locks/record.py $(VENV)/pylock.toml
