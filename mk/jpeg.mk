# Finds libjpeg-turbo, which decodes parts of pictures; the old libjpeg of the same name does not.

JPEG_HEADER := $(shell pkg-config --variable=includedir libjpeg 2>/dev/null)/jpeglib.h
ifeq ($(shell grep -lqs jpeg_crop_scanline $(JPEG_HEADER) && echo yes),yes)
HAVE_JPEG   := yes
else
HAVE_JPEG   := no
JPEG_REASON := libjpeg-turbo was not found; Debian's package libjpeg62-turbo-dev brings it
endif
ifeq ($(JPEG),no)
HAVE_JPEG   := no
JPEG_REASON := JPEG=no
endif
ifeq ($(JPEG)-$(HAVE_JPEG),yes-no)
ifeq ($(filter deps run help clean,$(MAKECMDGOALS)),)
$(error JPEG=yes, but $(JPEG_REASON))
endif
endif

JPEG_LIBS = $(shell pkg-config --libs libjpeg)
$(BUILD)/obj/plugins/data/image_folder/%.o: EXTRA_CFLAGS = $(shell pkg-config --cflags libjpeg)
$(BUILD)/plugins/data_image_folder.so: LDLIBS = $(JPEG_LIBS)
