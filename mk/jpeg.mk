# Finds libjpeg-turbo, which decodes parts of pictures; the old libjpeg of the same name does not.

JPEG_HEADER := $(shell $(PKG_CONFIG) --variable=includedir libjpeg 2>/dev/null)/jpeglib.h
JPEG_FOUND  := $(shell grep -ls jpeg_crop_scanline $(JPEG_HEADER))
JPEG_LACKS  := libjpeg-turbo was not found; Debian's package libjpeg62-turbo-dev brings it
$(eval $(call optional,JPEG,$(JPEG_FOUND),$(JPEG_LACKS),data/image_folder data/tfrecord,data image_folder))
ifeq ($(HAVE_JPEG),no)
$(eval $(call not_built,data tfrecord,$(if $(filter no,$(JPEG)),JPEG=no,$(JPEG_LACKS))))
endif

# Tar files: libarchive reads them, in one plugin.
ARCHIVE_FOUND := $(if $(filter yes,$(HAVE_JPEG)),$(shell $(PKG_CONFIG) --exists libarchive 2>/dev/null && echo yes))
$(eval $(call optional,ARCHIVE,$(ARCHIVE_FOUND),libarchive and libjpeg-turbo were not both found; Debian's packages \
	libarchive-dev and libjpeg62-turbo-dev bring them,data/tar,data tar))

# The data plugins that make samples of JPEG files.
JPEG_CFLAGS  = $(shell $(PKG_CONFIG) --cflags libjpeg)
JPEG_LIBS    = $(shell $(PKG_CONFIG) --libs libjpeg)
JPEG_PLUGINS := $(patsubst %,$(BUILD)/plugins/data_%.so,image_folder tfrecord tar)
lib_images  := $(wildcard plugins/lib/images/*.c)
$(JPEG_PLUGINS): $(patsubst %.c,$(BUILD)/obj/%.o,$(lib_images))
$(JPEG_PLUGINS): LDLIBS = $(JPEG_LIBS)
$(BUILD)/obj/plugins/lib/images/%.o $(BUILD)/obj/plugins/data/image_folder/%.o: EXTRA_CFLAGS = $(JPEG_CFLAGS)
$(BUILD)/plugins/data_tar.so: LDLIBS += $(ARCHIVE_LIBS)
$(BUILD)/obj/plugins/data/tar.o: EXTRA_CFLAGS = $(shell $(PKG_CONFIG) --cflags libarchive)
ARCHIVE_LIBS = $(shell $(PKG_CONFIG) --libs libarchive)
