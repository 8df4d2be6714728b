/* fuzz_idx.c - the four files of data 'idx', gzipped or not: parts of the input. */
#include "source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                        "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
    static const struct dpb_data_request request = {.shape = {1, 4, 4}, .nclass = 3};
    struct fuzz_input input = {data, size};
    fuzz_begin();
    for (int i = 0; i < 4; i++) {
        struct fuzz_input part = fuzz_part(&input);
        fuzz_write(names[i], part.data, part.size);
    }
    source_use((const char *const[]){NULL}, &request);
    return 0;
}
