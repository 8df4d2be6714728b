# Finds CUDA's compiler and libraries (tools/find-cuda): an installed toolkit, else what `make deps
# CUDA=yes` put into $(CUDA_DEPS) from PyPI, else what a PyTorch brought into $(BUILD)/venv or the
# system's Python. Nothing of it is linked to core, and nothing to libcuda: the plugins load where
# there is no driver.
#
# A plugin of $(CUDA_PLUGINS) may have kernels, plugins/KINDS/NAME/*.cu, each compiled for every
# architecture of $(CUDA_ARCHS) and as PTX for what comes later: `make CUDA_ARCHS=90` for one GPU.
# Without a GPU the tests read the code for sm_90 alone. For them a new build directory gets no other
# code, and a build that is there is kept. Every other goal compiles again if its architectures differ.

CUDA         ?= auto
CUDA_DEPS    ?= $(BUILD)/deps/cuda
CUDA_PLUGINS := $(foreach p,devices/cuda comm/nccl,$(if $(wildcard plugins/$(p) plugins/$(p).c),$(p)))
CUDA_NEEDS_devices/cuda := CUDART CUDNN CUBLASLT
CUDA_NEEDS_comm/nccl    := CUDART NCCL
CUDA_ARCHS_BUILT := $(BUILD)/obj/cuda_archs
ifeq ($(or $(wildcard /dev/nvidia[0-9]*),$(if $(MAKECMDGOALS),,all),$(filter-out check check-% tests tests-% mutants,$(MAKECMDGOALS))),)
CUDA_ARCHS   ?= $(or $(file <$(CUDA_ARCHS_BUILT)),90)
endif
CUDA_ARCHS   ?= 80 90 100
# Tests call make, too.
export CUDA_ARCHS

ifneq ($(CUDA),no)
$(foreach word,$(shell tools/find-cuda $(CUDA_DEPS) $(BUILD)/venv),$(eval CUDA_$(subst =, := ,$(word))))
endif

cuda_name_CUDART   := the_CUDA_runtime
cuda_name_CUDNN    := cuDNN_9
cuda_name_CUBLASLT := cuBLASLt
cuda_name_NCCL     := NCCL_2
cuda_comma         := ,
cuda_space         := $(subst x,,x x)
cuda_names = $(subst _, ,$(subst $(cuda_space),$(cuda_comma)_,$(strip $(foreach need,$(1),$(cuda_name_$(need))))))
ifeq ($(CUDA),no)
CUDA_REASON := CUDA=no
else ifneq ($(CUDA_TOO_OLD),)
CUDA_REASON := $(subst $(cuda_comma), is release ,$(CUDA_TOO_OLD)), and 12.8 is the first that will do; `make deps CUDA=yes` brings 13.0 from PyPI
else ifeq ($(CUDA_NVCC),)
CUDA_REASON := there was no CUDA toolkit at build time; `make deps CUDA=yes` brings one from PyPI
endif
# Why a plugin is not built; empty: it is.
cuda_missing = $(strip $(foreach need,$(CUDA_NEEDS_$(1)),$(if $(CUDA_$(need)_SO),,$(need))))
cuda_reason  = $(or $(CUDA_REASON),$(if $(call cuda_missing,$(1)),$(CUDA_NVCC) was there at build time but \
not $(call cuda_names,$(call cuda_missing,$(1))); `make deps CUDA=yes` brings it from PyPI))
CUDA_SKIPPED := $(strip $(foreach p,$(CUDA_PLUGINS),$(if $(call cuda_reason,$(p)),$(p))))
SKIPPED      += $(CUDA_SKIPPED)
$(foreach p,$(CUDA_SKIPPED),$(eval $(call not_built,$(subst /, ,$(p:devices/%=device/%)),$(call cuda_reason,$(p)))))
ifeq ($(CUDA),yes)
ifneq ($(CUDA_SKIPPED),)
ifeq ($(filter deps run check help clean,$(MAKECMDGOALS)),)
$(error CUDA=yes, but $(call cuda_reason,$(firstword $(CUDA_SKIPPED))))
endif
endif
endif

CUDA_CFLAGS := $(addprefix -isystem ,$(sort $(CUDA_CUDART_H) $(CUDA_CUBLASLT_H) $(CUDA_CUDNN_H) $(CUDA_NCCL_H)))
# To the host's compiler functions that kernels alone call are unused. A kernel that takes local memory
# (an array that is indexed by what is not known, registers that were spilled) is warned of.
CUDA_PTX    := $(lastword $(CUDA_ARCHS))
NVCC_FLAGS  := -std=c++17 -O3 -lineinfo -Icore/include -Iplugins $(CUDA_CFLAGS) \
	$(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
	-gencode arch=compute_$(CUDA_PTX),code=compute_$(CUDA_PTX) \
	-Xptxas -warn-lmem-usage,-warn-spills \
	-Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra,-Wno-unused-function $(if $(WERROR),-Werror all-warnings -Xcompiler -Werror)

# Sums, updates and codecs on arenas are the host's bit for bit: no product is fused with a sum.
$(patsubst %,$(BUILD)/obj/plugins/devices/cuda/kernels_%.o,arena codec powersgd): NVCC_FLAGS += -fmad=false

# By their files' names, so that two libraries of one name in several places are no question. Those of
# PyPI have no .so without a number.
cuda_dirs  = $(filter-out /usr/lib%,$(sort $(foreach need,$(1),$(abspath $(dir $(CUDA_$(need)_SO))))))
cuda_links = $(foreach need,$(1),$(CUDA_$(need)_SO)) $(addprefix -Wl$(cuda_comma)-rpath$(cuda_comma),$(cuda_dirs)) \
	-lstdc++ -Wl,--version-script=mk/plugin.map
# What the plugins for GPUs share.
lib_cuda := $(wildcard plugins/lib/cuda/*.c)
cuda_so  = $(BUILD)/plugins/$(call kind,$(patsubst %/,%,$(dir $(1))))_$(notdir $(1)).so
define cuda_plugin
$(BUILD)/obj/plugins/$(1).o $(BUILD)/obj/plugins/$(1)/%.o: EXTRA_CFLAGS = $(CUDA_CFLAGS)
$(call cuda_so,$(1)): LDLIBS = $$(call cuda_links,$(CUDA_NEEDS_$(1))) -ldl
$(call cuda_so,$(1)): $(lib_cuda:%.c=$(BUILD)/obj/%.o)
endef
$(foreach p,$(CUDA_PLUGINS),$(eval $(call cuda_plugin,$(p))))

# NCCL for `hierarchical`, which loads it when it is asked for; comm nccl has the same in itself.
lib_nccl := $(wildcard plugins/lib/nccl/*.c)
$(BUILD)/obj/plugins/lib/nccl/%.o: EXTRA_CFLAGS = $(CUDA_CFLAGS)
ifeq ($(filter comm/nccl,$(SKIPPED)),)
NCCL_OBJECT := $(BUILD)/plugins/libdpbench-nccl.so
PLUGINS += $(NCCL_OBJECT)
$(NCCL_OBJECT): $(patsubst %.c,$(BUILD)/obj/%.o,$(lib_nccl) $(lib_cuda))
$(NCCL_OBJECT): LDLIBS = $(call cuda_links,CUDART NCCL) -ldl
$(BUILD)/plugins/comm_nccl.so: $(patsubst %.c,$(BUILD)/obj/%.o,$(filter-out %/library.c,$(lib_nccl)))
else
SKIPPED += lib/nccl
endif
CUDA_PLUGINS_SO := $(foreach p,$(CUDA_PLUGINS),$(call cuda_so,$(p))) $(NCCL_OBJECT)

$(CUDA_ARCHS_BUILT): build-info
	$(call write_header,echo '$(strip $(CUDA_ARCHS))')

$(BUILD)/obj/plugins/%.o: plugins/%.cu $(CUDA_ARCHS_BUILT)
	@echo "  NVCC  $< ($(CUDA_ARCHS:%=sm_%))"
	@mkdir -p $(@D)
	$(Q)$(CUDA_NVCC) -ccbin $(lastword $(CXX)) $(NVCC_FLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

# What `make install` takes with it of libraries that we bring: PyPI's lie in the build directory.
ifneq ($(filter-out $(CUDA_SKIPPED),$(CUDA_PLUGINS)),)
ifneq ($(filter $(CUDA_DEPS)/%,$(CUDA_CUDART_SO)),)
CUDA_BRING := $(foreach l,cudart cublasLt cudnn nccl nvrtc,$(wildcard $(CUDA_DEPS)/nvidia/*/lib/lib$(l)*.so.*))
CUDA_BRING := $(foreach l,$(CUDA_BRING),$(if $(findstring .alt.,$(l)),,$(l)))
endif
endif
