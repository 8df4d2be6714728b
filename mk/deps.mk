.PHONY: deps
deps:
	$(Q)tools/deps "$(BUILD)" "$(ONEDNN)"
