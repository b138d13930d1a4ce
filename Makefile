# Every target does its own set-up: `make crawl-filter` and `make test` work on a fresh machine with
# Python 3.11 or newer and a C compiler.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Modules are compiled when first imported, which most of torch's and its like never are: half of the
# time of a set-up. So Python has to be allowed to keep what it compiled.
PIP     = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
unexport PYTHONDONTWRITEBYTECODE

INPUT  ?=
RECIPE ?=
OUTPUT ?=

.PHONY: setup setup-dev setup-train crawl-filter tokens train demo test test-first test-second test-third kernels lint explore bench soak lmplz clean

setup: $(VENV)/.run
setup-dev: $(VENV)/.dev

# The curation side: no torch.
$(VENV)/.run: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (once) ..." >&2
	@$(PIP) -c constraints.txt -e . >&2
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@$(PIP) -c constraints.txt -e '.[dev]' >&2
	@touch $@

# The trainer: with torch.
setup-train: $(VENV)/.train
$(VENV)/.train: $(VENV)/.run
	@$(PIP) -c constraints.txt -e '.[train]' >&2
	@touch $@

# Crawl to clean, deduplicated Parquet. Without INPUT: the embedded sample crawl.
crawl-filter: setup
	@$(BIN)/python -m curation run $(or $(RECIPE),pipelines/crawl-filter.yaml) $(foreach path,$(or $(INPUT),sample),--input '$(path)') $(if $(OUTPUT),--output '$(OUTPUT)')

# Clean documents to token shards and a manifest. Without INPUT (a run of documents): runs/latest,
# which is made of the sample crawl if need be.
tokens: setup
ifeq ($(INPUT),)
	@test -e runs/latest || $(MAKE) --no-print-directory crawl-filter RECIPE= OUTPUT= >&2
endif
	@$(BIN)/python -m curation run $(or $(RECIPE),pipelines/tokens-sample.yaml) --input '$(or $(INPUT),runs/latest)' $(if $(OUTPUT),--output '$(OUTPUT)')

# A training run on token shards. Without INPUT (a tokens run): runs/latest-tokens, which is made of the
# sample crawl if need be. CONFIG: a YAML file or a preset (tiny, demo, 125m, 350m, 1.4b, 7b).
CONFIG ?= tiny
train: setup-train
ifeq ($(INPUT),)
	@test -e runs/latest-tokens || $(MAKE) --no-print-directory tokens RECIPE= OUTPUT= >&2
endif
	@$(BIN)/python -m training.launch '$(CONFIG)' data.manifest='$(or $(INPUT),runs/latest-tokens)' $(if $(OUTPUT),run='$(OUTPUT)')

# The whole chain on the sample crawl, in a few minutes: pages, documents, tokens, a model, its text.
demo: setup-train
	@$(MAKE) --no-print-directory crawl-filter INPUT= RECIPE= OUTPUT=
	@$(MAKE) --no-print-directory tokens INPUT= RECIPE= OUTPUT=
	@$(BIN)/python -m training.launch demo data.manifest=runs/latest-tokens
	@$(BIN)/python -m training.evaluate runs/demo
	@$(BIN)/python -m training.generate runs/demo --prompt 'The river' --tokens 60

# In three parts at a time, by the alphabet, which happens to divide the work evenly: on two processors, since
# much of it waits for processes.
test: setup-dev
	@$(MAKE) --no-print-directory --jobs 3 --output-sync=target test-first test-second test-third

test-first: kernels
	@$(BIN)/python -m pytest -q --durations=12 tests/test_[a-l]*.py

test-second: kernels lint
	@$(BIN)/python -m pytest -q --durations=12 tests/test_[m-s]*.py tests/test_t[a-n]*.py

test-third: kernels
	@$(BIN)/python -m pytest -q --durations=12 tests/test_t[o-z]*.py tests/test_[u-z]*.py

# Compiled once, by a run, and not by each of the parts at the same time.
kernels: setup-dev
	@work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && \
	$(MAKE) --no-print-directory crawl-filter INPUT= RECIPE= OUTPUT="$$work/run" >/dev/null

lint: setup-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# Property tests on examples that are drawn anew; `make test` has the same ones every time.
ROUNDS ?= 3
explore: setup-dev
	@for round in $$(seq $(ROUNDS)); do \
	$(BIN)/python -m pytest -q -m hypothesis --hypothesis-profile explore || exit 1; done

# The engine's throughput and its own share; on the sample crawl, many times over, without ARCHIVE.
# bench/peer.py runs datatrove beside it, bench/text_view.py the kernels alone.
ARCHIVE ?=
bench: setup-dev
ifeq ($(ARCHIVE),)
	@mkdir -p runs
	@$(BIN)/python -m curation.sample runs/bench-sample.warc.gz
	@$(BIN)/python bench/corpus.py runs/bench.warc.gz runs/bench-sample.warc.gz --records 4000
endif
	@$(BIN)/python bench/pipeline.py $(or $(ARCHIVE),runs/bench.warc.gz)

# Runs that are killed and damaged at random, held against an undisturbed one.
MINUTES ?= 10
soak: setup-dev
	@$(BIN)/python bench/soak.py --minutes $(MINUTES)

# KenLM's own estimator, for `curation models train-kenlm` on corpora that do not fit into memory.
KENLM := 0.3.0
BOOST := libboost-program-options-dev libboost-system-dev libboost-thread-dev libboost-test-dev
lmplz: $(BIN)/lmplz
$(BIN)/lmplz: | $(VENV)/.run
	@test -x $(BIN)/cmake || command -v cmake >/dev/null || $(PIP) cmake >&2
	@PATH="$(abspath $(BIN)):$$PATH"; work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && \
	echo "building lmplz of kenlm $(KENLM) (about a minute) ..." >&2 && \
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary kenlm --dest "$$work" kenlm==$(KENLM) >&2 && \
	tar -xzf "$$work/kenlm-$(KENLM).tar.gz" -C "$$work" && \
	{ cmake -S "$$work/kenlm-$(KENLM)" -B "$$work/build" -DCMAKE_BUILD_TYPE=Release >"$$work/log" 2>&1 || \
	{ grep -A3 -i error "$$work/log" >&2; echo "wanted: a C++ compiler, zlib and boost (Debian: apt-get install g++ zlib1g-dev $(BOOST))" >&2; exit 2; }; } && \
	cmake --build "$$work/build" --target lmplz build_binary --parallel 2 >"$$work/log" 2>&1 || { tail -5 "$$work/log" >&2; exit 2; }; \
	install -m 755 "$$work/build/bin/build_binary" "$$work/build/bin/lmplz" $(BIN)/

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .pytest_cache .ruff_cache
