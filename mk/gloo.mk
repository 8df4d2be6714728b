# Finds Gloo (libgloo-dev), and the C++ compiler for the shim between it and plugins/comm/gloo.

GLOO_FOUND := $(shell $(CXX) -E -x c++ -include gloo/config.h /dev/null >/dev/null 2>&1 && echo yes)
$(eval $(call optional,GLOO,$(GLOO_FOUND),Gloo or a C++ compiler was not found; Debian's packages \
	libgloo-dev and g++ bring them,comm/gloo,comm gloo))

# C++'s templates would leave symbols of their own.
$(BUILD)/plugins/comm_gloo.so: LDLIBS = -lgloo -lstdc++ -ldl -Wl,--version-script=mk/plugin.map
