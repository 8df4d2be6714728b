# Finds libibverbs, which nothing but plugins/comm/ring_verbs uses.

ifeq ($(shell pkg-config --exists libibverbs 2>/dev/null && echo yes),yes)
HAVE_VERBS   := yes
else
HAVE_VERBS   := no
VERBS_REASON := libibverbs was not found; Debian's package libibverbs-dev brings it
endif
ifeq ($(VERBS),no)
HAVE_VERBS   := no
VERBS_REASON := VERBS=no
endif
ifeq ($(VERBS)-$(HAVE_VERBS),yes-no)
ifeq ($(filter deps run help clean,$(MAKECMDGOALS)),)
$(error VERBS=yes, but $(VERBS_REASON))
endif
endif

VERBS_LIBS = $(shell pkg-config --libs libibverbs)
$(BUILD)/obj/plugins/comm/ring_verbs/%.o: EXTRA_CFLAGS = $(shell pkg-config --cflags libibverbs)
$(BUILD)/plugins/comm_ring_verbs.so: LDLIBS = $(VERBS_LIBS)
