# The profiles of accelerators that come with dpbench, made again by the program itself.
.PHONY: profiles
profiles: core plugins
	$(Q)DPB_BUILD=$(BUILD) profiles/make profiles
