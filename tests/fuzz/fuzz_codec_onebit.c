/* fuzz_codec_onebit.c - messages of codec onebit. */
#include "codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    codec_use(data, size);
    return 0;
}
