/*
 * fuzz_pack.c - the pack of data 'image_folder', in front of files that never change: the input is
 * the pack. Its first byte says whether length, magic and checksum are made right, so that what is
 * behind them is reached.
 */
#include "source.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { HEADER = 64, ENTRY = 40, FILES = 4, FILE_BYTES = 146 };

static const char *const names[FILES] = {"train/a/0.jpg", "train/b/1.jpg", "val/a/2.jpg",
                                         "val/b/3.jpg"};

static void set64(uint8_t *bytes, uint64_t value)
{
    memcpy(bytes, &value, sizeof value);
}

/* The same sizes and times in every process: the pack's entries hold them. What is in the files is
 * in the pack. */
static void make_files(void)
{
    static const char *const directories[] = {"train",   "val",   "train/a",
                                              "train/b", "val/a", "val/b"};
    static const uint8_t content[FILE_BYTES];
    static bool made;
    char path[512];
    for (int i = 0; i < 6 && !made; i++) {
        snprintf(path, sizeof path, "%s/%s", fuzz_directory(), directories[i]);
        FUZZ_CHECK(mkdir(path, 0777) == 0);
    }
    for (int i = 0; i < FILES && !made; i++) {
        const struct timespec times[2] = {{1000, 0}, {1000, 0}};
        fuzz_write(names[i], content, sizeof content);
        snprintf(path, sizeof path, "%s/%s", fuzz_directory(), names[i]);
        FUZZ_CHECK(utimensat(AT_FDCWD, path, times, 0) == 0);
    }
    made = true;
}

static void mend(uint8_t *pack, size_t size)
{
    static const uint8_t magic[8] = "DPBPACK1";
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    if (size < HEADER + FILES * ENTRY)
        return;
    for (size_t i = HEADER; i < HEADER + FILES * ENTRY; i++)
        hash = (hash ^ pack[i]) * UINT64_C(0x100000001b3);
    memcpy(pack, magic, sizeof magic);
    set64(pack + 24, size);
    set64(pack + 32, hash);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct dpb_data_request request = {
        .shape = {3, 8, 8}, .nclass = 2, .n_workers = 1};
    char shard[300];
    fuzz_begin();
    make_files();
    if (size < 1)
        return 0;
    uint8_t *pack = malloc(size);
    FUZZ_CHECK(pack != NULL);
    memcpy(pack, data + 1, size - 1);
    if (data[0] % 2 == 1)
        mend(pack, size - 1);
    fuzz_write("pack", pack, size - 1);
    free(pack);
    snprintf(shard, sizeof shard, "data.shard_file=%s/pack", fuzz_directory());
    source_use((const char *const[]){"data.preload=file", "data.max_pixels=65536",
                                     "data.max_corrupt=1", shard, NULL},
               &request);
    return 0;
}
