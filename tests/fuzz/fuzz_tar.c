/* fuzz_tar.c - a file of data 'tar'. */
#include "source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct dpb_data_request request = {
        .shape = {3, 8, 8}, .nclass = 2, .n_workers = 1};
    fuzz_begin();
    fuzz_write("train.tar", data, size);
    source_use(
        (const char *const[]){"data.val=", "data.max_pixels=65536", "data.max_corrupt=1", NULL},
        &request);
    return 0;
}
