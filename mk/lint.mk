# Static checks: `make lint` looks at the form (.clang-format, 100 columns), builds all with gcc and with
# clang, warnings as errors, then clang-tidy (.clang-tidy) and cppcheck (tools/lint/cppcheck.txt) on core
# and plugins, shellcheck on scripts and a look at the Python. Nothing of it goes into $(BUILD)/dpbench.

# A loop that was not vectorised is slow, not wrong.
LINT_BUILD  = $(MAKE) $(JOBS) all bench-own WERROR="-Werror -Wno-error=pass-failed" ONEDNN=$(ONEDNN) CUDA_DEPS=$(CUDA_DEPS)
LINT_C      = $(shell find core study links conform emulate watch plugins templates tests bench -name '*.[ch]' -o -name '*.inc' -o -name '*.cu' -o -name '*.cc')
LINT_SHELL := $(shell grep -lE '^\#!/bin/(ba)?sh' -r tools bench tests profiles .ci 2>/dev/null) .ci/run
LINT_PYTHON := $(shell grep -lE '^\#!/usr/bin/env python3' -r tools bench tests profiles 2>/dev/null) \
	$(wildcard bench/*.py bench/*/*.py tests/*/*.py)

.PHONY: lint lint-deps lint-format lint-gcc lint-clang lint-tidy lint-cppcheck lint-scripts
lint: lint-deps lint-format lint-gcc lint-clang lint-tidy lint-cppcheck lint-scripts
lint-format lint-gcc lint-clang lint-tidy lint-cppcheck lint-scripts: | lint-deps
lint-deps:
	$(Q)mkdir -p $(BUILD)
	$(Q)tools/packages clang clang-format clang-tidy cppcheck shellcheck
lint-format:
	$(Q)clang-format --dry-run --Werror $(LINT_C)
	$(Q)! grep -nE '^.{101}' $(LINT_C)
	@echo "  LINT  clang-format"
lint-gcc:
	$(Q)$(LINT_BUILD) BUILD=$(BUILD)/lint/gcc CC=gcc CXX=g++ WERROR=-Werror >$(BUILD)/$@.log || { cat $(BUILD)/$@.log; exit 1; }
	@echo "  LINT  gcc"
lint-clang:
	$(Q)$(LINT_BUILD) BUILD=$(BUILD)/lint/clang CC=clang CXX=clang++ CUDA_ARCHS=90 >$(BUILD)/$@.log || { cat $(BUILD)/$@.log; exit 1; }
	@echo "  LINT  clang"
lint-tidy: $(BUILD_INFO) $(NOT_BUILT_H) $(GLOSSARY_H)
	$(Q)paths="$(COMM_PATHS)" cuda="$(CUDA_CFLAGS)" tools/lint/tidy $(BUILD) $(filter-out $(SKIPPED:%=plugins/%/%) $(SKIPPED:%=plugins/%.c),$(wildcard core/*/*.c study/*/*.c links/*.c conform/*.c emulate/*.c watch/*.c plugins/*/*.c plugins/*/*/*.c))
	@echo "  LINT  clang-tidy"
lint-cppcheck:
	$(Q)cppcheck -q -j 2 --std=c11 --enable=warning,portability --inline-suppr --error-exitcode=1 \
		--suppressions-list=tools/lint/cppcheck.txt --library=tools/lint/jansson.cfg \
		-D__GNUC__ -Icore/include -Icore -I. -Iplugins $(COMM_PATHS) core study links conform emulate watch plugins
	@echo "  LINT  cppcheck"
lint-scripts:
	$(Q)shellcheck -S warning -e SC1007 $(sort $(LINT_SHELL))
	$(Q)PYTHONPYCACHEPREFIX=$(BUILD)/lint/pycache python3 -m py_compile $(sort $(LINT_PYTHON))
	@echo "  LINT  scripts"
