/* fuzz_jpeg.c - a picture of data 'image_folder' and others: crop, decoding and resizing of it. */
#include "plugins/lib/images/images.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_PIXELS = 1 << 16 };

static const struct dpb_shape shape = {3, 9, 7};

struct tools {
    struct decoder *decoder;
    struct resizer *resizer;
};

static void make_sample(const struct tools *tools, struct fuzz_input input, bool random,
                        bool partial)
{
    static const struct crop_options options = {0.08, 1, 0.75, 1.3333333333333333, 0.5, 0.875};
    char reason[REASON_BYTES] = "";
    uint32_t w, h;
    struct crop crop;
    struct region region;
    uint64_t decoded = 0;
    if (decoder_begin(tools->decoder, input.data, input.size, MOST_PIXELS, &w, &h, reason) !=
        GOOD) {
        FUZZ_CHECK(reason[0] != '\0');
        return;
    }
    FUZZ_CHECK((uint64_t)w * h <= MOST_PIXELS);
    if (random)
        crop_random(&options, &(struct crop_key){1, 2, 3}, w, h, &crop);
    else
        crop_centre(&options, shape, w, h, &crop);
    uint32_t scale = partial ? decoder_scale(&crop.inner, shape) : 8;
    uint8_t *sample = malloc(dpb_shape_elements(shape));
    FUZZ_CHECK(sample != NULL);
    FUZZ_CHECK(resizer_begin(tools->resizer, &crop, scale, w, h, sample, &region) == DPB_OK);
    if (decoder_rows(tools->decoder, &region, partial, resizer_take, tools->resizer, &decoded,
                     reason) == GOOD)
        fuzz_used();
    free(sample);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    fuzz_begin();
    image_host = fuzz_host();
    uint8_t way = fuzz_byte(&input);
    struct tools tools = {decoder_create(), resizer_create(shape)};
    FUZZ_CHECK(tools.decoder && tools.resizer);
    make_sample(&tools, input, way & 1, way & 2);
    make_sample(&tools, input, way & 4, way & 8); /* what the first left behind must not matter */
    decoder_destroy(tools.decoder);
    resizer_destroy(tools.resizer);
    return 0;
}
