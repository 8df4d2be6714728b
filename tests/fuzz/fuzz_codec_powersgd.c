/* fuzz_codec_powersgd.c - messages of codec powersgd. */
#include "codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    codec_use(data, size);
    return 0;
}
