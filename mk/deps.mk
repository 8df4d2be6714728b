.PHONY: deps
deps:
	$(Q)tools/deps "$(BUILD)" "$(ONEDNN)" "$(CUDA)" "$(CUDA_DEPS)"
