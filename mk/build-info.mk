# What dpbench was built from and how, for result.versions.build: a header that changes only when its
# text does. Without git, or outside of a work tree, there is no description.
BUILD_INFO := $(BUILD)/obj/build_info.h
.PHONY: build-info
build-info:
# $(1) prints the header. Its temporary file is of this process: another make may write there, too.
define write_header
	@mkdir -p $(@D)
	@new=$@.$$$$; { $(1); } >$$new && if cmp -s $$new $@; then rm -f $$new; else mv -f $$new $@; fi
endef
$(BUILD_INFO): build-info
	$(call write_header,echo '#define DPB_BUILD_FLAGS "$(subst ",\",$(strip $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(SANITIZE)))"'; \
	git="$$(tools/git-version)"; \
	if [ -n "$$git" ]; then echo "#define DPB_BUILD_GIT \"$$git\""; \
	else echo '#define DPB_BUILD_GIT NULL'; fi)
$(BUILD)/obj/core/record/invocation.o: CORE_CFLAGS += -I$(BUILD)/obj
$(BUILD)/obj/core/record/invocation.o: $(BUILD_INFO)

# Likewise what is the same for all code: with other flags, of another version or beside other libraries it
# is compiled again, so that DPB_BUILD_FLAGS and DPB_VERSION are those of every part.
BUILT_WITH_TEXT := $(strip $(CC) $(CXX) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) $(SANITIZE) $(HARDEN) $(file <VERSION)) \
	PMIX=$(HAVE_PMIX) VERBS=$(HAVE_VERBS)
$(BUILT_WITH): build-info
	$(call write_header,echo $(call shell_word,$(BUILT_WITH_TEXT)))

# Likewise what was not built and why, for `dpbench plugins`.
NOT_BUILT_H := $(BUILD)/obj/not_built.h
$(NOT_BUILT_H): build-info
	$(call write_header,tools/not-built $(NOT_BUILT))
$(BUILD)/obj/core/plugin/not_built.o: CORE_CFLAGS += -I$(BUILD)/obj
$(BUILD)/obj/core/plugin/not_built.o: $(NOT_BUILT_H)

# The terms of docs/glossary.md, for `dpbench help`.
GLOSSARY_H := $(BUILD)/obj/glossary.h
$(GLOSSARY_H): docs/glossary.md tools/glossary
	$(call write_header,tools/glossary $<)
	@touch $@
$(BUILD)/obj/core/cli/cmd_help.o: CORE_CFLAGS += -I$(BUILD)/obj
$(BUILD)/obj/core/cli/cmd_help.o: $(GLOSSARY_H)
