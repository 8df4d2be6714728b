# Finds oneDNN 3.x: the system's own, else what `make deps` put into $(ONEDNN) from PyPI.

ONEDNN_SYSTEM := $(shell $(PKG_CONFIG) --exists 'dnnl >= 3' 2>/dev/null && echo yes)
ONEDNN_OURS   := $(wildcard $(ONEDNN)/include/dnnl.h)
$(eval $(call optional,CPU,$(ONEDNN_SYSTEM)$(ONEDNN_OURS),oneDNN 3.x was not found; `make deps` brings \
	it from PyPI,devices/cpu,device cpu))

ifeq ($(ONEDNN_SYSTEM),yes)
ONEDNN_CFLAGS := $(shell $(PKG_CONFIG) --cflags dnnl)
ONEDNN_LIBS   := $(shell $(PKG_CONFIG) --libs dnnl)
else
ONEDNN_CFLAGS := -isystem $(ONEDNN)/include
ONEDNN_LIBS   := -L$(ONEDNN)/lib -ldnnl
ONEDNN_BRING  := $(if $(ONEDNN_OURS),$(BUILD)/plugins/libdnnl.so.3)
endif

$(BUILD)/obj/plugins/devices/cpu/%.o: EXTRA_CFLAGS = $(ONEDNN_CFLAGS) -fopenmp
$(BUILD)/plugins/device_cpu.so: LDLIBS = $(ONEDNN_LIBS) -fopenmp
$(BUILD)/plugins/device_cpu.so: $(ONEDNN_BRING)

# A library that we bring lies beside the plugins.
$(BUILD)/plugins/libdnnl.so.3: $(ONEDNN)/lib/libdnnl.so.3
	@mkdir -p $(@D)
	$(Q)cp -f $< $@
