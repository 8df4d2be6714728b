# Finds PMIx, by which mpirun and srun tell a process which rank of what it is. Its library is loaded
# at run time, and only under such a launcher: the headers are all that is needed here.

PMIX_HEADER := $(shell pkg-config --variable=includedir pmix 2>/dev/null)/pmix.h
ifneq ($(wildcard $(PMIX_HEADER)),)
HAVE_PMIX   := yes
else
HAVE_PMIX   := no
PMIX_REASON := PMIx was not found; Debian's package libpmix-dev brings it
endif
ifeq ($(PMIX),no)
HAVE_PMIX   := no
PMIX_REASON := PMIX=no
endif
ifeq ($(PMIX)-$(HAVE_PMIX),yes-no)
ifeq ($(filter deps run help clean,$(MAKECMDGOALS)),)
$(error PMIX=yes, but $(PMIX_REASON))
endif
endif

ifeq ($(HAVE_PMIX),yes)
$(BUILD)/obj/core/world/pmix.o: CORE_CFLAGS += $(patsubst -I%,-isystem %,$(shell pkg-config --cflags pmix)) -DDPB_HAVE_PMIX=1
endif
