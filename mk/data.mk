$(BUILD)/plugins/data_idx.so: LDLIBS = $(shell $(PKG_CONFIG) --libs zlib)
