/*
 * jpeg_decode.c - what libjpeg-turbo alone does: decodes every JPEG file of a directory at full
 * size to RGB, several passes with so many threads, out of memory. No cropping, no scaling, no
 * shuffling, no labels.
 *
 *     jpeg_decode THREADS DIRECTORY      prints {"samples_per_s": ..., "versions": {...}}
 */
#define _GNU_SOURCE
#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jpeglib.h>

enum { PASSES = 5, MOST_FILES = 1 << 20, MOST_THREADS = 1024 };

#define TEXT_OF(x) #x
#define VALUE_OF(x) TEXT_OF(x)

struct file {
    unsigned char *bytes;
    size_t n;
};

static struct file *files;
static size_t n_files, n_turns; /* of a pass: each file several times where threads are many */
static atomic_size_t next, n_decoded_bytes;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "jpeg_decode: %s: %s\n", what, why);
    exit(1);
}

static int add_file(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)place;
    const char *dot = strrchr(path, '.');
    if (kind != FTW_F || !dot || (strcmp(dot, ".jpg") != 0 && strcmp(dot, ".jpeg") != 0))
        return 0;
    struct file file = {malloc((size_t)info->st_size + 1), (size_t)info->st_size};
    FILE *stream = fopen(path, "rb");
    if (n_files == MOST_FILES || !file.bytes || !stream ||
        fread(file.bytes, 1, file.n, stream) != file.n)
        fail(path, "cannot be read");
    fclose(stream);
    files[n_files++] = file;
    return 0;
}

/* `row` has room for the widest row. */
static size_t decode(struct jpeg_decompress_struct *jpeg, const struct file *file,
                     unsigned char **row, size_t *capacity)
{
    jpeg_mem_src(jpeg, file->bytes, file->n);
    jpeg_read_header(jpeg, TRUE);
    jpeg->out_color_space = JCS_RGB;
    jpeg_start_decompress(jpeg);
    size_t row_bytes = (size_t)jpeg->output_width * 3;
    if (row_bytes > *capacity) {
        free(*row);
        *row = malloc(row_bytes);
        *capacity = row_bytes;
    }
    if (!*row)
        fail("memory", "there is not enough");
    while (jpeg->output_scanline < jpeg->output_height)
        jpeg_read_scanlines(jpeg, row, 1);
    size_t bytes = row_bytes * jpeg->output_height;
    jpeg_finish_decompress(jpeg);
    return bytes;
}

/* Takes files until the pass is over. */
static void *work(void *unused)
{
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors; /* the standard one: ends the program */
    unsigned char *row = NULL;
    size_t capacity = 0, bytes = 0;
    (void)unused;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    for (size_t i; (i = next++) < n_turns;)
        bytes += decode(&jpeg, &files[i % n_files], &row, &capacity);
    jpeg_destroy_decompress(&jpeg);
    free(row);
    n_decoded_bytes += bytes;
    return NULL;
}

static double pass_s(int n_threads)
{
    static pthread_t threads[MOST_THREADS];
    struct timespec begin, end;
    next = 0;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, work, NULL) != 0)
            fail("threads", "cannot be started");
    for (int i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    double seconds[PASSES];
    int n_threads = argc == 3 ? atoi(argv[1]) : 0;
    if (n_threads < 1 || n_threads > MOST_THREADS) {
        fprintf(stderr, "usage: jpeg_decode THREADS DIRECTORY\n");
        return 2;
    }
    files = malloc(MOST_FILES * sizeof *files);
    if (!files || nftw(argv[2], add_file, 16, 0) != 0 || n_files == 0)
        fail(argv[2], "has no JPEG files");
    n_turns = n_files * (size_t)(n_threads > 2 ? n_threads / 2 : 1);
    pass_s(n_threads); /* not timed */
    n_decoded_bytes = 0;
    for (int i = 0; i < PASSES; i++)
        seconds[i] = pass_s(n_threads);
    qsort(seconds, PASSES, sizeof *seconds, compare);
    double median_s = seconds[PASSES / 2];
    printf("{\"samples_per_s\": %.3f, \"bytes_decoded_per_s\": %.0f, \"samples\": %zu, "
           "\"threads\": %d, \"versions\": {\"libjpeg-turbo\": \"%s\"}}\n",
           (double)n_turns / median_s, (double)n_decoded_bytes / PASSES / median_s, n_files,
           n_threads, VALUE_OF(LIBJPEG_TURBO_VERSION));
    return 0;
}
