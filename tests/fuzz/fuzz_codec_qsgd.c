/* fuzz_codec_qsgd.c - messages of codec qsgd. */
#include "codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    codec_use(data, size);
    return 0;
}
