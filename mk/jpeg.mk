# Finds libjpeg-turbo, which decodes parts of pictures; the old libjpeg of the same name does not.

JPEG_HEADER := $(shell $(PKG_CONFIG) --variable=includedir libjpeg 2>/dev/null)/jpeglib.h
JPEG_FOUND  := $(shell grep -ls jpeg_crop_scanline $(JPEG_HEADER))
$(eval $(call optional,JPEG,$(JPEG_FOUND),libjpeg-turbo was not found; Debian's package \
	libjpeg62-turbo-dev brings it,data/image_folder,data image_folder))

# The data plugins that make samples of JPEG files.
JPEG_CFLAGS  = $(shell $(PKG_CONFIG) --cflags libjpeg)
JPEG_LIBS    = $(shell $(PKG_CONFIG) --libs libjpeg)
JPEG_PLUGINS := $(BUILD)/plugins/data_image_folder.so
lib_images  := $(wildcard plugins/lib/images/*.c)
$(JPEG_PLUGINS): $(patsubst %.c,$(BUILD)/obj/%.o,$(lib_images))
$(JPEG_PLUGINS): LDLIBS = $(JPEG_LIBS)
$(BUILD)/obj/plugins/lib/images/%.o $(BUILD)/obj/plugins/data/image_folder/%.o: EXTRA_CFLAGS = $(JPEG_CFLAGS)
