/* fuzz_codec_threshold.c - messages of codec threshold. */
#include "codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    codec_use(data, size);
    return 0;
}
