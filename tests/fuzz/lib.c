/* lib.c - see fuzz.h. */
#include "tests/fuzz/fuzz.h"

#include <ftw.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/experiment.h"

/* Deflate makes 1032 bytes of one at the most, and inputs are short. */
#define MOST_BYTES ((size_t)256 << 20)

static int file = -1;
static bool used;
static char directory[256];

/* ---- input --------------------------------------------------------------------------------- */

uint8_t fuzz_byte(struct fuzz_input *input)
{
    if (input->size == 0)
        return 0;
    input->size--;
    return *input->data++;
}

uint32_t fuzz_word(struct fuzz_input *input)
{
    uint32_t word = 0;
    for (int i = 0; i < 4; i++)
        word |= (uint32_t)fuzz_byte(input) << (8 * i);
    return word;
}

struct fuzz_input fuzz_part(struct fuzz_input *input)
{
    size_t length = fuzz_byte(input);
    length |= (size_t)fuzz_byte(input) << 8;
    struct fuzz_input part = {input->data, length < input->size ? length : input->size};
    input->data += part.size;
    input->size -= part.size;
    return part;
}

void fuzz_begin(void)
{
    static const struct dpb_log_hooks silent = {.silent = true};
    dpb_log_set_hooks(&silent);
    dpb_log_set_level(DPB_LOG_ERROR);
    dpb_first_error_clear();
    dpb_warnings_clear();
    used = false;
}

void fuzz_used(void)
{
    used = true;
}

bool fuzz_was_used(void)
{
    return used;
}

/* ---- files --------------------------------------------------------------------------------- */

static void write_all(int fd, const uint8_t *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        FUZZ_CHECK(n > 0);
        data += n;
        size -= (size_t)n;
    }
}

const char *fuzz_file(const uint8_t *data, size_t size)
{
    static char path[64];
    FUZZ_CHECK(file < 0);
    file = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_CHECK(file >= 0);
    write_all(file, data, size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return path;
}

void fuzz_close(void)
{
    close(file);
    file = -1;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)kind, (void)place;
    return remove(path);
}

static void remove_directory(void)
{
    nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *fuzz_directory(void)
{
    if (directory[0] != '\0')
        return directory;
    const char *place = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/dpb_fuzz_XXXXXX", place ? place : "/tmp");
    FUZZ_CHECK(mkdtemp(directory) != NULL);
    atexit(remove_directory);
    return directory;
}

void fuzz_write(const char *name, const uint8_t *data, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", fuzz_directory(), name);
    FILE *stream = fopen(path, "we");
    FUZZ_CHECK(stream != NULL);
    FUZZ_CHECK(fwrite(data, 1, size, stream) == size);
    FUZZ_CHECK(fclose(stream) == 0);
}

/* ---- host ---------------------------------------------------------------------------------- */

static void *bounded_alloc(size_t bytes)
{
    FUZZ_CHECK(bytes <= MOST_BYTES);
    return dpb_alloc(bytes);
}

const struct dpb_host *fuzz_host(void)
{
    static struct dpb_host host;
    host = dpb_host;
    host.alloc = bounded_alloc;
    return &host;
}
