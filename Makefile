# dpbench - build, run and test. `make help` lists the targets.
#
#   make deps      installs what is missing (Debian packages; oneDNN from PyPI), saying first what
#   make           builds build/dpbench and its plugins, which run from there
#   make run       deps, build, quickstart
#   make check     deps, build, all tests that fit in minutes; make check-NAME: one of them;
#                  make check-cuda: the tests of the CUDA code, which need a toolkit and no GPU
#   make lint      static checks; make fuzz FUZZ_S=60: hostile input; make asan|ubsan|asan-ubsan|tsan
#   make install   to PREFIX (/usr/local), under DESTDIR; make uninstall takes it away again
#   make deb       Debian packages in build/deb
#
# Variables: V=1 (show commands), DEPS=no (install nothing), WHEELS=DIR (oneDNN's wheels offline),
# CPU=auto|yes|no (the oneDNN device), JPEG=auto|yes|no (data image_folder, tfrecord and tar),
# ARCHIVE=auto|yes|no (data tar), GLOO=auto|yes|no (comm gloo), VERBS=auto|yes|no (comm ring_verbs),
# MPI=auto|yes|no (comm mpi), PMIX=auto|yes|no (mpirun and srun), CUDA=auto|yes|no (NVIDIA GPUs; with
# yes, deps brings the toolkit from PyPI), BUILD=DIR, PREFIX=DIR, DESTDIR=DIR, WERROR=-Werror,
# SANITIZE=FLAGS, HARDEN=FLAGS, and make's usual CC, CXX, AR, CFLAGS, CPPFLAGS, LDFLAGS, PKG_CONFIG.

BUILD   ?= build
CC      ?= gcc
PKG_CONFIG ?= pkg-config
V       ?= 0
MAKEFLAGS += --no-print-directory
Q       := $(if $(filter 1,$(V)),,@)
SANITIZE ?=
WERROR  ?=
# The files included below have rules of their own.
.DEFAULT_GOAL := all
# What a failed recipe leaves, as on a full disk, is not up to date.
.DELETE_ON_ERROR:
# Goals beside it would build what it removes.
ifneq ($(filter clean,$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif

PKGS    := jansson hwloc zlib libsodium
CFLAGS  ?= -O2 -g
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
DEFS    := -D_GNU_SOURCE -DDPB_VERSION='"$(shell cat VERSION)"'
# What makes mistakes harder to use. Sanitizers have checks of their own in its place.
HARDEN  ?= $(if $(SANITIZE),,-fstack-protector-strong \
	$(if $(filter -O1 -O2 -O3 -Os,$(CFLAGS)),-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2))
HARDEN_LINK ?= -Wl,-z,relro,-z,now
COMMON  := -std=c11 $(WARN) $(WERROR) $(DEFS) -fno-math-errno -MMD -MP $(HARDEN) $(SANITIZE)
CORE_CFLAGS   = $(COMMON) -fPIE -Wconversion -Icore/include -Icore -I. $(shell $(PKG_CONFIG) --cflags $(PKGS))
# The library of the strategies: headers of these rooms include each other by bare names, in the tree
# as where they are installed, all in one directory.
COMM_ROOMS  := signals strategy tcp mesh coded ring averaging reduce device_strategy
COMM_PATHS  := $(COMM_ROOMS:%=-Iplugins/lib/%)
PLUGIN_CFLAGS = $(COMMON) -Icore/include -Iplugins $(COMM_PATHS) -fPIC -fvisibility=hidden
# Of C++ there are shims alone, between a library of that language and a plugin.
PLUGIN_CXXFLAGS = -std=c++17 $(filter-out -std=c11 -Wstrict-prototypes -Wmissing-prototypes,$(PLUGIN_CFLAGS))
CORE_LIBS     = $(shell $(PKG_CONFIG) --libs $(PKGS)) -lm -ldl -lpthread

# How all code is compiled, beside what is in its files: mk/build-info.mk.
BUILT_WITH := $(BUILD)/obj/built_with

# ---------------------------------------------------------------- what there is, found by its place
# The program dpbench is core's alone. A command that stands on it is a program of its own,
# dpbench-NAME, whose main is in cmd_NAME.c; all else of study, links, conform, emulate and watch is
# one library.
object      = $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard $(1)))
MAIN_OBJ   := $(BUILD)/obj/core/cli/main.o
LIB_OBJ    := $(sort $(filter-out $(MAIN_OBJ),$(call object,core/*/*.c)))
COMMAND_OBJ := $(sort $(call object,study/*/cmd_*.c links/cmd_*.c conform/cmd_*.c emulate/cmd_*.c watch/cmd_*.c))
STUDY_OBJ  := $(sort $(filter-out $(COMMAND_OBJ),$(call object,study/*/*.c links/*.c conform/*.c emulate/*.c)))
COMMANDS   := $(patsubst cmd_%.o,$(BUILD)/dpbench-%,$(notdir $(COMMAND_OBJ)))
# The oracle of `dpbench conform`: the ops of device reference.
ORACLE_OBJ := $(addprefix $(BUILD)/obj/plugins/devices/reference/,ops.o magnitudes.o)
$(BUILD)/obj/conform/opcheck.o: CORE_CFLAGS += -Iplugins
# `dpbench links network` finds and connects machines as the strategies over TCP do. That is in the
# program alone: tests of that library have it beside libstudy.a.
TCP_OBJ := $(addprefix $(BUILD)/obj/plugins/lib/tcp/,tcp_connect.o interface.o)
$(BUILD)/obj/links/network_test.o: CORE_CFLAGS += -Iplugins
# The reader of profiles, which a device and a model have, too.
ACCELERATOR_OBJ := $(BUILD)/obj/plugins/lib/accelerator/accelerator.o
$(BUILD)/obj/emulate/%.o $(BUILD)/obj/study/predict/%.o: CORE_CFLAGS += -Iplugins

# A plugin is plugins/KINDS/NAME.c or plugins/KINDS/NAME/*.c and becomes KIND_NAME.so.
KINDS      := devices models data comm codecs
kind        = $(patsubst devices,device,$(patsubst models,model,$(patsubst codecs,codec,$(1))))
plugin_names = $(sort $(basename $(notdir $(wildcard plugins/$(1)/*.c))) \
                      $(notdir $(patsubst %/,%,$(dir $(wildcard plugins/$(1)/*/*.c)))))
plugin_src   = $(wildcard plugins/$(1)/$(2).c plugins/$(1)/$(2)/*.c plugins/$(1)/$(2)/*.cc plugins/$(1)/$(2)/*.cu)
plugin_obj   = $(patsubst %,$(BUILD)/obj/%.o,$(basename $(plugin_src)))

ONEDNN     := $(BUILD)/deps/onednn
# What may be missing; each says why.
OPTIONAL   := mk/optional.mk $(patsubst %,mk/%.mk,onednn jpeg gloo verbs pmix mpi cuda)
include $(OPTIONAL)

# Code that several plugins of a kind share is linked into each.
lib_comm   := $(wildcard $(patsubst %,plugins/lib/%/*.c,$(COMM_ROOMS) object))
lib_devices := $(wildcard plugins/lib/device/*.c)
# A device and a model read a profile, as programs do.
ACCELERATOR_PLUGINS := $(addprefix $(BUILD)/plugins/,device_emulated.so model_profile.so)
# Authors of strategies link the code of ours, and include <dpbench-comm/*.h>.
COMM_LIB   := $(BUILD)/libdpbench-comm.a
COMM_API   := $(addprefix plugins/lib/,$(addsuffix .h,signals/signals signals/doorbell \
	$(addprefix strategy/,strategy pipeline slices squares shard sums) tcp/tcp_connect \
	$(addprefix mesh/,mesh mesh_links mesh_transport mesh_tcp) coded/coded $(addprefix ring/,ring ring_strategy gather) \
	averaging/averaging reduce/reduce device_strategy/device_strategy))
COMM_LINKS := $(patsubst %,$(BUILD)/include/dpbench-comm/%,$(notdir $(COMM_API)))

define plugin_rule
ifeq ($(filter $(1)/$(2),$(SKIPPED)),)
PLUGINS += $(BUILD)/plugins/$(call kind,$(1))_$(2).so
$(BUILD)/plugins/$(call kind,$(1))_$(2).so: $(call plugin_obj,$(1),$(2)) $(patsubst %.c,$(BUILD)/obj/%.o,$(lib_$(1)))
endif
endef
$(foreach k,$(KINDS),$(foreach n,$(call plugin_names,$(k)),$(eval $(call plugin_rule,$(k),$(n)))))

# What tests on the host take. For them no plugin of CUDA's is made, since its kernels take long to
# compile; one that is there is kept up to date.
HOST_BUILD := $(BUILD)/dpbench $(COMMANDS) $(BUILD)/profiles $(COMM_LIB) $(COMM_LINKS) \
	$(filter-out $(filter-out $(wildcard $(BUILD)/plugins/*.so),$(CUDA_PLUGINS_SO)),$(PLUGINS))

.PHONY: all core plugins run help clean
all: $(HOST_BUILD) plugins
	$(Q)tools/summary $(BUILD) $(NOT_BUILT)
core: $(BUILD)/dpbench $(COMMANDS) $(BUILD)/profiles
plugins: $(PLUGINS)

# What stands on core's library comes before it.
LIBS := $(BUILD)/libstudy.a $(BUILD)/libcore.a
define command_rule
$(BUILD)/dpbench-$(patsubst cmd_%.o,%,$(notdir $(1))): $(1) $(LIBS)
endef
$(foreach o,$(COMMAND_OBJ),$(eval $(call command_rule,$(o))))
$(BUILD)/dpbench-links: $(TCP_OBJ)
$(BUILD)/dpbench: $(MAIN_OBJ) $(BUILD)/libcore.a
$(BUILD)/dpbench $(COMMANDS):
	@echo "  LD    $@"
	$(Q)$(CC) $(SANITIZE) -pie $(HARDEN_LINK) $(LDFLAGS) $(EXPORTS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(CORE_LIBS)

# The reader of profiles finds those of dpbench from its own place, wherever that is.
$(BUILD)/profiles:
	$(Q)mkdir -p $(@D) && ln -sfn $(CURDIR)/profiles $@

$(BUILD)/libcore.a: $(LIB_OBJ)
$(BUILD)/libstudy.a: $(STUDY_OBJ) $(ORACLE_OBJ) $(ACCELERATOR_OBJ)
$(COMM_LIB): $(patsubst %.c,$(BUILD)/obj/%.o,$(lib_comm))
$(LIBS) $(COMM_LIB):
	@echo "  AR    $@"
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# For plugins that are built beside the tree, without an installed dpbench.
$(COMM_LINKS) &:
	$(Q)rm -rf $(@D) && mkdir -p $(@D) && ln -s $(COMM_API:%='$(CURDIR)/%') $(@D)

$(ACCELERATOR_PLUGINS): $(ACCELERATOR_OBJ)
$(ACCELERATOR_PLUGINS): LDLIBS = $(shell $(PKG_CONFIG) --libs jansson) -ldl

$(BUILD)/plugins/%.so:
	@echo "  LD    $@"
	@mkdir -p $(@D)
	$(Q)$(CC) $(SANITIZE) -shared -Wl,-z,defs $(HARDEN_LINK) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN' -o $@ $(filter %.o,$^) $(LDLIBS) -lm -lpthread

define core_rule
$(BUILD)/obj/$(1)/%.o: $(1)/%.c $(BUILT_WITH)
	@echo "  CC    $$<"
	@mkdir -p $$(@D)
	$(Q)$$(CC) $$(CPPFLAGS) $$(CFLAGS) $$(CORE_CFLAGS) -c -o $$@ $$<
endef
$(foreach tree,core study links conform emulate watch,$(eval $(call core_rule,$(tree))))

$(BUILD)/obj/plugins/%.o: plugins/%.c $(BUILT_WITH)
	@echo "  CC    $<"
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(PLUGIN_CFLAGS) $(EXTRA_CFLAGS) -c -o $@ $<

$(BUILD)/obj/plugins/%.o: plugins/%.cc $(BUILT_WITH)
	@echo "  CXX   $<"
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CPPFLAGS) $(CFLAGS) $(PLUGIN_CXXFLAGS) -c -o $@ $<

# Arithmetic that the compiler should vectorise, and code for one instruction set, by file.
HOT_CORE := $(addprefix $(BUILD)/obj/,core/base/vec.o core/base/update.o core/proof/pattern.o links/links_memory.o)
$(HOT_CORE): CFLAGS += -O3
$(BUILD)/obj/plugins/codecs/%.o $(BUILD)/obj/plugins/lib/images/resize.o $(BUILD)/obj/plugins/data/synthetic.o: CFLAGS += -O3

# The hot loops are the code that they would be without.
UNHARDEN := -fno-stack-protector -U_FORTIFY_SOURCE
$(HOT_CORE): CORE_CFLAGS += $(UNHARDEN)
$(BUILD)/obj/plugins/devices/%.o $(BUILD)/obj/plugins/lib/images/resize.o: PLUGIN_CFLAGS += $(UNHARDEN)

# Two commands do all the set-up: this is one. A second make looks again at what deps brought; it
# takes all cores, unless -j said how many.
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc))
run: deps
	$(Q)$(MAKE) $(JOBS) all
	$(Q)$(BUILD)/dpbench -c conf/quickstart.ini run.results=$(BUILD)/results

clean:
	rm -rf $(filter-out $(BUILD)/deps $(BUILD)/venv,$(wildcard $(BUILD)/*))

help:
	@sed -n '/^$$/q; s/^# \{0,1\}//p' Makefile
	@echo "Targets: all run deps install uninstall deb check check-cuda check-unit check-NAME check-install" \
		"check-aarch64 check-long check-gpu gpu-pack mutants asan ubsan asan-ubsan tsan fuzz fuzz-seeds profiles lint bench bench-gpu bench-deps clean"

include $(filter-out $(OPTIONAL),$(sort $(wildcard mk/*.mk)))

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
