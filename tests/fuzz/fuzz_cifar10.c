/*
 * fuzz_cifar10.c - files of data 'cifar10': a byte for each of its six, how many records it has and
 * how many bytes too many, then what repeats in them.
 */
#include "source.h"

#include <unistd.h>

enum { RECORD = 3073, FILES = 6 };

static void make_file(int number, uint8_t form, struct fuzz_input content)
{
    static uint8_t bytes[15 * RECORD + 15];
    size_t n = (size_t)(form & 15) * RECORD + (form >> 4);
    char name[32], path[300];
    snprintf(name, sizeof name, number < FILES - 1 ? "data_batch_%d.bin" : "test_batch.bin",
             number + 1);
    snprintf(path, sizeof path, "%s/%s", fuzz_directory(), name);
    unlink(path);
    if (form == 0)
        return;
    for (size_t i = 0; i < n && i < sizeof bytes; i++)
        bytes[i] = content.size > 0 ? content.data[i % content.size] : (uint8_t)i;
    fuzz_write(name, bytes, n < sizeof bytes ? n : sizeof bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct dpb_data_request request = {.shape = {3, 32, 32}, .nclass = 10};
    struct fuzz_input input = {data, size};
    uint8_t forms[FILES], way;
    fuzz_begin();
    for (int i = 0; i < FILES; i++)
        forms[i] = fuzz_byte(&input);
    way = fuzz_byte(&input);
    for (int i = 0; i < FILES; i++)
        make_file(i, forms[i], input);
    source_use(
        (const char *const[]){way % 2 ? "data.augment=crop_flip" : "data.augment=none", NULL},
        &request);
    return 0;
}
