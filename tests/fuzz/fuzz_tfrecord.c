/*
 * fuzz_tfrecord.c - a file of data 'tfrecord'. An odd first byte: the parts behind it become
 * records with right checksums, so that what is in them is reached. Else the input is the file.
 */
#include "source.h"
#include "tests/lib/masked_crc.h"

/* Returns the bytes of the file that it makes of parts. */
static size_t frame(struct fuzz_input input, uint8_t *file)
{
    size_t n = 0;
    while (input.size > 0) {
        const struct fuzz_input part = fuzz_part(&input);
        const uint64_t length = part.size;
        const uint32_t tail = masked_crc(part.data, part.size);
        memcpy(file + n, &length, 8);
        const uint32_t head = masked_crc(file + n, 8);
        memcpy(file + n + 8, &head, 4);
        if (part.size > 0)
            memcpy(file + n + 12, part.data, part.size);
        memcpy(file + n + 12 + part.size, &tail, 4);
        n += 16 + part.size;
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct dpb_data_request request = {
        .shape = {3, 8, 8}, .nclass = 2, .n_workers = 1};
    struct fuzz_input input = {data, size};
    fuzz_begin();
    if (fuzz_byte(&input) % 2 == 1) {
        uint8_t *file = malloc(17 * input.size + 1);
        FUZZ_CHECK(file != NULL);
        fuzz_write("train", file, frame(input, file));
        free(file);
    } else {
        fuzz_write("train", input.data, input.size);
    }
    source_use(
        (const char *const[]){"data.val=", "data.max_pixels=65536", "data.max_corrupt=1", NULL},
        &request);
    return 0;
}
