# Finds libjpeg-turbo, which decodes parts of pictures; the old libjpeg of the same name does not.

JPEG_HEADER := $(shell $(PKG_CONFIG) --variable=includedir libjpeg 2>/dev/null)/jpeglib.h
JPEG_FOUND  := $(shell grep -ls jpeg_crop_scanline $(JPEG_HEADER))
$(eval $(call optional,JPEG,$(JPEG_FOUND),libjpeg-turbo was not found; Debian's package \
	libjpeg62-turbo-dev brings it,data/image_folder,data image_folder))

$(BUILD)/obj/plugins/data/image_folder/%.o: EXTRA_CFLAGS = $(shell $(PKG_CONFIG) --cflags libjpeg)
JPEG_LIBS    = $(shell $(PKG_CONFIG) --libs libjpeg)
$(BUILD)/plugins/data_image_folder.so: LDLIBS = $(JPEG_LIBS)
