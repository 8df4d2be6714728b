# Installing what has been built: nothing is compiled, nothing is taken but what the build names.
# The program looks for plugins in ../lib/dpbench, for the programs of its other commands in
# ../libexec/dpbench, and plugins for libraries beside them ($ORIGIN), so the tree may be moved.

PREFIX  ?= /usr/local
DESTDIR ?=

# Manual pages and completion, from the option tables of what was built.

PAGES_DIR := $(BUILD)/pages
PAGES := $(addprefix $(PAGES_DIR)/,dpbench.1 dpbench.ini.5 dpbench _dpbench)
$(PAGES) &: $(BUILD)/dpbench $(PLUGINS) tools/pages
	@echo "  GEN   $(PAGES_DIR)"
	$(Q)tools/pages $(BUILD)/dpbench $(PAGES_DIR)

INSTALL_DIRS := bin libexec/dpbench lib/dpbench include/dpbench share/dpbench/conf share/doc/dpbench \
	share/doc/dpbench/docs
# Where zsh looks: Debian's packages have a place of their own.
ZSH_DIR := share/zsh/$(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)
INSTALL_DIRS += share/man/man1 share/man/man5 share/bash-completion/completions $(ZSH_DIR)
IN_share/man/man1 := $(PAGES_DIR)/dpbench.1
IN_share/man/man5 := $(PAGES_DIR)/dpbench.ini.5
IN_share/bash-completion/completions := $(PAGES_DIR)/dpbench
IN_$(ZSH_DIR) := $(PAGES_DIR)/_dpbench
# Templates of `dpbench new` and of the pages of `dpbench report`.
INSTALL_DIRS += share/dpbench/templates $(patsubst %/,share/dpbench/%,$(sort $(wildcard templates/*/)))
IN_share/dpbench/templates := templates/Makefile templates/report.html templates/figure.js
$(foreach d,$(wildcard templates/*/),$(eval IN_share/dpbench/$(d:/=) := $(sort $(wildcard $(d)*))))
INSTALL_DIRS += share/dpbench/schemas
IN_share/dpbench/schemas  := $(sort $(wildcard schemas/*.json))
INSTALL_DIRS += share/dpbench/profiles
IN_share/dpbench/profiles := $(sort $(wildcard profiles/*.json))
# When a GPU last proved a plugin, for `dpbench plugins`.
INSTALL_DIRS += share/dpbench/bench/gpu
IN_share/dpbench/bench/gpu := $(sort $(wildcard bench/gpu/*.json))
IN_bin                    := $(BUILD)/dpbench
IN_libexec/dpbench        := $(COMMANDS)
IN_lib/dpbench            := $(PLUGINS)
IN_include/dpbench        := $(sort $(wildcard core/include/dpbench/*.h))
# For strategies: the library, and each header with all that it includes.
INSTALL_DIRS += lib include/dpbench-comm
IN_lib                    := $(COMM_LIB)
IN_include/dpbench-comm   := $(COMM_API)
IN_share/dpbench/conf     := $(sort $(wildcard conf/*.ini))
IN_share/doc/dpbench      := README.md CONTRIBUTING.md LICENSE
IN_share/doc/dpbench/docs := $(sort $(wildcard docs/*.md))

# Libraries that we bring, and their licences.
ifeq ($(HAVE_CPU),yes)
ifneq ($(ONEDNN_BRING),)
INSTALL_DIRS += share/doc/dpbench/onednn
IN_lib/dpbench += $(ONEDNN_BRING)
IN_share/doc/dpbench/onednn := $(sort $(wildcard $(ONEDNN)/share/doc/onednn/*))
endif
endif

ifneq ($(CUDA_BRING),)
IN_lib/dpbench += $(CUDA_BRING)
INSTALL_DIRS += share/doc/dpbench/cuda
IN_share/doc/dpbench/cuda := $(sort $(wildcard $(CUDA_DEPS)/share/doc/cuda/*))
endif

INSTALL_LIST := $(BUILD)/install.list

.PHONY: install uninstall
install uninstall: export DPB_ROOT = $(DESTDIR)$(PREFIX)
install: $(BUILD)/dpbench $(COMMANDS) plugins $(COMM_LIB) $(PAGES)
	$(file >$(INSTALL_LIST),$(foreach d,$(INSTALL_DIRS),$(IN_$(d):%=$(d):%)))
	$(Q)tools/install-tree install $(INSTALL_LIST)

# Debian packages; apt install ./build/deb/dpbench*.deb
.PHONY: deb
deb: all
	$(Q)rm -rf $(BUILD)/deb && mkdir -p $(BUILD)/deb
	$(Q)$(MAKE) install DESTDIR='$(abspath $(BUILD)/deb/root)' PREFIX=/usr >/dev/null
	$(Q)tools/deb $(BUILD)/deb/root "$$(cat VERSION)" $(BUILD)/deb

uninstall:
	$(Q)tools/install-tree uninstall
