# Every target sets up what it needs first; tools/setup.sh does nothing when nothing has changed.
SHELL := /bin/bash
BIN := .venv/bin
# JIT compilers look for ninja on PATH.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Without bytecode every import of vLLM takes twice as long.
unexport PYTHONDONTWRITEBYTECODE
# Only where it is said to make: in the environment LANGUAGE speaks to gettext.
ifeq ($(origin LANGUAGE),command line)
export COURSE_LANGUAGE := $(LANGUAGE)
endif
.DEFAULT_GOAL := help
.PHONY: help setup run lab test lint book bench notebooks lock clean

# The notebooks of CHAPTERS, or all of them.
NOTEBOOKS = $(if $(CHAPTERS),$(foreach n,$(CHAPTERS),$(wildcard notebooks/$(n)_*.ipynb notebooks/0$(n)_*.ipynb)),$(wildcard notebooks/*.ipynb))

help:       ## this list
	@sed -n 's/^\([a-z]*\): .*## /  make \1\t/p' Makefile | expand -t 18

setup:      ## make .venv, for the GPU if there is one, else for the CPU
	@tools/setup.sh

run: setup  ## execute the course with papermill (CHAPTERS="1 7", LANGUAGE=zh_CN)
	$(BIN)/course run $(CHAPTERS)

lab: setup  ## open the course in JupyterLab
	$(BIN)/course lab

# One pytest for the tests and for the stored outputs of the notebooks: all of it runs, whatever fails.
test: setup ## tests, and notebooks against their stored outputs (CHAPTERS="1 7" for some)
	$(BIN)/pytest tests $(NOTEBOOKS) --nbval --nbval-current-env --nbval-cell-timeout=600 --nbval-sanitize-with tests/nbval-sanitize.cfg

lint: setup ## ruff and mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

book: setup ## the web book, into build/book
	$(BIN)/sphinx-build -W --keep-going -b html -c book . build/book

bench: setup ## speed (on an idle machine)
	$(BIN)/python -m benchmarks

notebooks: setup ## run chapters anew and store their outputs (CHAPTERS="1 7" for some)
	$(BIN)/jupyter execute --inplace $(NOTEBOOKS)

lock: setup ## resolve the pins of pyproject.toml anew
	$(BIN)/python tools/lock.py

clean:      ## remove what was built, not .venv
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
