/*
 * fuzz_tokens.c - files of data 'tokens': a byte for their type, one for whether the test set has
 * files of its own, then the parts: two files of a directory, and the test set's.
 */
#include "source.h"

#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const types[] = {"data.type=llmc", "data.type=bytes", "data.type=uint16"};
    static const struct dpb_data_request request = {.shape = {1, 1, 4}, .nclass = 300, .ids = true};
    struct fuzz_input input = {data, size};
    char below[512], path[540], test_path[540];
    fuzz_begin();
    const char *type = types[fuzz_byte(&input) % 3];
    const bool test = fuzz_byte(&input) % 2 == 1;
    snprintf(below, sizeof below, "%s/train", fuzz_directory());
    mkdir(below, 0700);
    static const char *const names[] = {"train/a", "train/b", "test"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct fuzz_input part = fuzz_part(&input);
        fuzz_write(names[i], part.data, part.size);
    }
    snprintf(path, sizeof path, "data.path=%s", below);
    snprintf(test_path, sizeof test_path, "data.test_path=%s/test", fuzz_directory());
    source_use(
        (const char *const[]){type, path, "data.vocabulary=300", test ? test_path : NULL, NULL},
        &request);
    return 0;
}
