# Finds libibverbs, which nothing but plugins/lib/verbs uses.

VERBS_FOUND := $(shell $(PKG_CONFIG) --exists libibverbs 2>/dev/null && echo yes)
$(eval $(call optional,VERBS,$(VERBS_FOUND),libibverbs was not found; Debian's package libibverbs-dev \
	brings it,comm/ring_verbs lib/verbs,comm ring_verbs))

VERBS_LIBS = $(shell $(PKG_CONFIG) --libs libibverbs)
$(BUILD)/obj/plugins/lib/verbs/%.o: EXTRA_CFLAGS = $(shell $(PKG_CONFIG) --cflags libibverbs)

# The strategies that have this transport.
VERBS_USERS := ring_verbs hierarchical gloo ps_cpu
ifeq ($(HAVE_VERBS),yes)
VERBS_PLUGINS := $(VERBS_USERS:%=$(BUILD)/plugins/comm_%.so)
$(VERBS_PLUGINS): $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard plugins/lib/verbs/*.c))
$(VERBS_PLUGINS): LDLIBS += $(VERBS_LIBS)
$(VERBS_USERS:%=$(BUILD)/obj/plugins/comm/%.o): EXTRA_CFLAGS = -DDPB_HAVE_VERBS=1
$(VERBS_USERS:%=$(BUILD)/obj/plugins/comm/%/%.o): EXTRA_CFLAGS = -DDPB_HAVE_VERBS=1
endif
