/* fuzz_codec_topk.c - messages of codec topk. */
#include "codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    codec_use(data, size);
    return 0;
}
