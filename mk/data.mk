$(BUILD)/plugins/data_idx.so: LDLIBS = $(shell pkg-config --libs zlib)
