# Libraries that dpbench can do without. Each has a variable: auto (used where it was found), yes
# (nothing is built without it) or no.
#
#   $(eval $(call optional,VARIABLE,FOUND,WHY,PLUGINS,WORDS))
#
# FOUND: not empty where it was. WHY: what to say where it was not. PLUGINS: what is not built then, as
# SKIPPED has them; WORDS: their name for people. Sets HAVE_VARIABLE to yes or no.

SKIPPED   :=
# Pairs of words for tools/summary and tools/not-built: what was not built, and why.
NOT_BUILT :=

shell_word = '$(subst ','\'',$(1))'
define not_built
NOT_BUILT += $(call shell_word,$(1)) $(call shell_word,$(2))
endef

define optional
$(1) ?= auto
ifeq ($$($(1)),no)
HAVE_$(1) := no
$(call not_built,$(5),$(1)=no)
else ifneq ($(2),)
HAVE_$(1) := yes
else
HAVE_$(1) := no
$(call not_built,$(5),$(3))
ifeq ($$($(1))-$$(filter deps run check help clean,$$(MAKECMDGOALS)),yes-)
$$(error $(1)=yes, but $(3))
endif
endif
ifeq ($$(HAVE_$(1)),no)
SKIPPED += $(4)
endif
endef
