# What dpbench was built from and how, for result.versions.build: a header that changes only when its
# text does. Without git, or outside of a work tree, there is no description.
BUILD_INFO := $(BUILD)/obj/build_info.h
.PHONY: build-info
build-info:
$(BUILD_INFO): build-info
	@mkdir -p $(@D)
	@{ echo '#define DPB_BUILD_FLAGS "$(subst ",\",$(strip $(CFLAGS) $(SANITIZE)))"'; \
	git="$$([ -e .git ] && git describe --always --dirty 2>/dev/null)"; \
	if [ -n "$$git" ]; then echo "#define DPB_BUILD_GIT \"$$git\""; \
	else echo '#define DPB_BUILD_GIT NULL'; fi; } >$@.new
	@if cmp -s $@.new $@; then rm -f $@.new; else mv -f $@.new $@; fi
$(BUILD)/obj/core/study/invocation.o: CORE_CFLAGS += -I$(BUILD)/obj
$(BUILD)/obj/core/study/invocation.o: $(BUILD_INFO)

# Likewise what was not built and why, for `dpbench plugins`.
NOT_BUILT_H := $(BUILD)/obj/not_built.h
$(NOT_BUILT_H): build-info
	@mkdir -p $(@D)
	@tools/not-built $(NOT_BUILT) >$@.new
	@if cmp -s $@.new $@; then rm -f $@.new; else mv -f $@.new $@; fi
$(BUILD)/obj/core/plugin/not_built.o: CORE_CFLAGS += -I$(BUILD)/obj
$(BUILD)/obj/core/plugin/not_built.o: $(NOT_BUILT_H)
