/* weights.c - see weights.h. */
#include "lib/weights.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/test.h"

enum { LENGTH_BYTES = 8, TENSOR_ALIGN = 16 };

/* ---- reading ------------------------------------------------------------------------------- */

static void map_file(struct weights *weights, const char *path)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0 || info.st_size < LENGTH_BYTES)
        fail_msg("%s: there is no checkpoint", path);
    weights->file_bytes = (size_t)info.st_size;
    weights->file = mmap(NULL, weights->file_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (weights->file == MAP_FAILED)
        fail_msg("%s: cannot be mapped", path);
}

static void read_tensor(struct weights *weights, const char *path, const char *name,
                        const json_t *entry, size_t data)
{
    json_int_t begin, end;
    const char *type;
    if (json_unpack((json_t *)entry, "{s:s, s:[I, I]}", "dtype", &type, "data_offsets", &begin,
                    &end) != 0 ||
        (strcmp(type, "F64") != 0 && strcmp(type, "F32") != 0) || begin < 0 || end < begin ||
        data + (size_t)end > weights->file_bytes)
        fail_msg("%s: tensor %s is not one", path, name);
    bool fp64 = strcmp(type, "F64") == 0;
    weights->tensors[weights->n_tensors++] =
        (struct weight_tensor){.name = strdup(name),
                               .n_elements = (uint64_t)(end - begin) / (fp64 ? 8 : 4),
                               .values = (const char *)weights->file + data + begin,
                               .fp64 = fp64};
}

static bool is_wanted(const char *name, bool optimizer)
{
    return strcmp(name, "__metadata__") != 0 &&
           (optimizer || (strncmp(name, "optimizer.", 10) != 0 && strncmp(name, "comm.", 5) != 0));
}

static void release(void *memory)
{
    struct weights *weights = memory;
    for (size_t i = 0; i < weights->n_tensors; i++)
        free(weights->tensors[i].name);
    free(weights->tensors);
    munmap(weights->file, weights->file_bytes);
    free(weights);
}

void weights_read(struct weights *weights, const char *path, bool optimizer)
{
    uint64_t length;
    const char *name;
    json_t *entry;
    map_file(weights, path);
    memcpy(&length, weights->file, LENGTH_BYTES);
    if (length > weights->file_bytes - LENGTH_BYTES)
        fail_msg("%s: is cut off", path);
    json_t *header = json_loadb((const char *)weights->file + LENGTH_BYTES, length, 0, NULL);
    if (!json_is_object(header))
        fail_msg("%s: its header is no JSON object", path);
    weights->n_tensors = 0;
    weights->tensors = calloc(json_object_size(header), sizeof *weights->tensors);
    json_object_foreach(header, name, entry) if (is_wanted(name, optimizer))
        read_tensor(weights, path, name, entry, LENGTH_BYTES + length);
    json_decref(header);
    weights->owned = malloc(sizeof *weights);
    assert_non_null(weights->owned);
    *(struct weights *)own_memory(weights->owned, release) = *weights;
}

void weights_free(struct weights *weights)
{
    free_owned(weights->owned);
    memset(weights, 0, sizeof *weights);
}

double weights_value(const struct weight_tensor *tensor, uint64_t element)
{
    return tensor->fp64 ? ((const double *)tensor->values)[element]
                        : (double)((const float *)tensor->values)[element];
}

uint64_t weights_arena_elements(const struct weights *weights)
{
    uint64_t elements = 0;
    for (size_t i = 0; i < weights->n_tensors; i++)
        if (!strstr(weights->tensors[i].name, ".running_"))
            elements +=
                (weights->tensors[i].n_elements + TENSOR_ALIGN - 1) / TENSOR_ALIGN * TENSOR_ALIGN;
    return elements;
}

/* ---- comparing ----------------------------------------------------------------------------- */

static void expect_same_tensors(const struct weights *a, const struct weights *b)
{
    if (a->n_tensors != b->n_tensors || a->n_tensors == 0)
        fail_msg("checkpoints of %zu and %zu tensors", a->n_tensors, b->n_tensors);
    for (size_t i = 0; i < a->n_tensors; i++) {
        const struct weight_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        if (strcmp(x->name, y->name) != 0 || x->n_elements != y->n_elements || x->fp64 != y->fp64)
            fail_msg("tensor %zu is %s of %llu elements and %s of %llu", i, x->name,
                     (unsigned long long)x->n_elements, y->name, (unsigned long long)y->n_elements);
    }
}

/* max|tensor - start|, or max|tensor|. */
static double scale_of(const struct weight_tensor *tensor, const struct weight_tensor *start)
{
    double scale = 0.0;
    for (uint64_t i = 0; i < tensor->n_elements; i++)
        scale = fmax(scale, fabs(weights_value(tensor, i) - (start ? weights_value(start, i) : 0)));
    return scale;
}

bool weights_agree(const struct weights *a, const struct weights *b, const struct weights *start,
                   double bound, struct weights_difference *worst)
{
    double worst_ratio = -1.0;
    expect_same_tensors(a, b);
    if (start)
        expect_same_tensors(start, b);
    for (size_t t = 0; t < a->n_tensors; t++) {
        const struct weight_tensor *x = &a->tensors[t], *y = &b->tensors[t];
        double allowed = bound * scale_of(y, start ? &start->tensors[t] : NULL);
        for (uint64_t i = 0; i < x->n_elements; i++) {
            double p = weights_value(x, i), q = weights_value(y, i), apart = fabs(p - q);
            double ratio = apart <= 0.0 ? 0.0 : apart / allowed;
            if (!(ratio <= worst_ratio) && !isnan(worst_ratio)) {
                worst_ratio = ratio;
                *worst = (struct weights_difference){x->name, i, p, q, allowed};
            }
        }
    }
    return worst_ratio <= 1.0;
}

void weights_expect_equal(const char *path_a, const char *path_b, bool statistics)
{
    struct weights a, b;
    weights_read(&a, path_a, true);
    weights_read(&b, path_b, true);
    expect_same_tensors(&a, &b);
    for (size_t t = 0; t < a.n_tensors; t++) {
        const struct weight_tensor *x = &a.tensors[t], *y = &b.tensors[t];
        if (!statistics && strstr(x->name, ".running_"))
            continue;
        if (memcmp(x->values, y->values, x->n_elements * (x->fp64 ? 8 : 4)) != 0)
            fail_msg("%s and %s differ in %s", path_a, path_b, x->name);
    }
    weights_free(&a);
    weights_free(&b);
}
