# Finds Gloo (libgloo-dev), and the C++ compiler for the shim between it and plugins/comm/gloo.

GLOO_WORKS := $(shell $(CXX) -E -x c++ -include gloo/config.h /dev/null >/dev/null 2>&1 && echo yes)
ifeq ($(GLOO_WORKS),yes)
HAVE_GLOO   := yes
else
HAVE_GLOO   := no
GLOO_REASON := Gloo or a C++ compiler was not found; Debian's packages libgloo-dev and g++ bring them
endif
ifeq ($(GLOO),no)
HAVE_GLOO   := no
GLOO_REASON := GLOO=no
endif
ifeq ($(GLOO)-$(HAVE_GLOO),yes-no)
ifeq ($(filter deps run help clean,$(MAKECMDGOALS)),)
$(error GLOO=yes, but $(GLOO_REASON))
endif
endif

# C++'s templates would leave symbols of their own.
$(BUILD)/plugins/comm_gloo.so: LDLIBS = -lgloo -lstdc++ -ldl -Wl,--version-script=mk/plugin.map
