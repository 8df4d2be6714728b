/*
 * checkpoint.c - safetensors files: 8 bytes with the length of the header, the header in JSON, the
 * tensors one after the other. All numbers are little endian.
 */
#include "graph/checkpoint.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/log.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are written as they lie");
_Static_assert(sizeof(off_t) == 8, "files are larger than 2 GiB");

enum { LENGTH_BYTES = 8, MAX_HEADER = 100 * 1000 * 1000 /* the format's own limit */ };

/* One tensor of the file: a trainable one or a state, in an arena. */
struct entry {
    const char *name;
    uint32_t n_dims;
    const uint32_t *dims;
    uint64_t n_elements;
    char *memory;
};

/* The names of a file in its canonical order: node by node, weight, bias, mean, variance. */
struct entries {
    struct entry *array; /* @owned */
    uint32_t n;
    uint32_t *channels; /* @owned: dims of the states */
};

static const char *type_name(dpb_dtype type)
{
    return type == DPB_FP64 ? "F64" : "F32";
}

static void add_tensor(struct entries *entries, const struct dpb_graph *graph, dpb_dtype type,
                       uint32_t index, char *weights)
{
    if (index == DPB_NONE)
        return;
    const struct dpb_tensor *tensor = &graph->tensors[index];
    entries->array[entries->n++] =
        (struct entry){.name = tensor->name,
                       .n_dims = tensor->n_dims,
                       .dims = tensor->dims,
                       .n_elements = tensor->n_elements,
                       .memory = weights + tensor->offset * dpb_dtype_size(type)};
}

static void add_state(struct entries *entries, const struct dpb_graph *graph, dpb_dtype type,
                      uint32_t index, char *state)
{
    if (index == DPB_NONE)
        return;
    const struct dpb_state *one = &graph->states[index];
    entries->channels[index] = (uint32_t)one->n_elements;
    entries->array[entries->n++] =
        (struct entry){.name = one->name,
                       .n_dims = 1,
                       .dims = &entries->channels[index],
                       .n_elements = one->n_elements,
                       .memory = state + one->offset * dpb_dtype_size(type)};
}

static dpb_status entries_open(const struct dpb_graph *graph, dpb_dtype type, void *weights,
                               void *state, struct entries *entries)
{
    assert(type == DPB_FP32 || type == DPB_FP64);
    *entries = (struct entries){
        .array = calloc((size_t)graph->n_tensors + graph->n_states + 1, sizeof *entries->array),
        .channels = calloc((size_t)graph->n_states + 1, sizeof *entries->channels)};
    if (!entries->array || !entries->channels)
        return dpb_fail(DPB_NO_MEMORY, "checkpoint of %s: out of memory", graph->name);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct dpb_node *node = &graph->nodes[i];
        add_tensor(entries, graph, type, node->weight, weights);
        add_tensor(entries, graph, type, node->bias, weights);
        add_state(entries, graph, type, node->mean, state);
        add_state(entries, graph, type, node->variance, state);
    }
    return DPB_OK;
}

static void entries_close(struct entries *entries)
{
    free(entries->array);
    free(entries->channels);
}

/* ---------------------------------------------------------------------------------------- saving
 */

static json_t *metadata_to_json(const char *const *metadata)
{
    json_t *object = json_object();
    for (; metadata && metadata[0]; metadata += 2)
        json_object_set_new(object, metadata[0], json_string(metadata[1]));
    return object;
}

/* The header as text, padded with spaces so that the tensors begin at a multiple of 8 bytes. */
static dpb_status make_header(const char *path, const struct entries *entries, dpb_dtype type,
                              const char *const *metadata, char **header)
{
    json_t *root = json_object();
    if (metadata)
        json_object_set_new(root, "__metadata__", metadata_to_json(metadata));
    uint64_t offset = 0;
    for (uint32_t i = 0; i < entries->n; i++) {
        const struct entry *entry = &entries->array[i];
        uint64_t end = offset + entry->n_elements * dpb_dtype_size(type);
        json_t *shape = json_array();
        for (uint32_t k = 0; k < entry->n_dims; k++)
            json_array_append_new(shape, json_integer((json_int_t)entry->dims[k]));
        json_object_set_new(root, entry->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", type_name(type), "shape",
                                      shape, "data_offsets", (json_int_t)offset, (json_int_t)end));
        offset = end;
    }
    char *compact = json_dumps(root, JSON_COMPACT);
    size_t expected = entries->n + (metadata ? 1u : 0u);
    bool complete = compact && json_object_size(root) == expected;
    json_decref(root);
    size_t length = complete ? (strlen(compact) + 7) / 8 * 8 : 0;
    char *text = complete ? malloc(length + 1) : NULL;
    if (!text) {
        free(compact);
        return dpb_fail(DPB_FAILED,
                        "%s: its header cannot be made: out of memory, or metadata "
                        "that is not UTF-8",
                        path);
    }
    snprintf(text, length + 1, "%-*s", (int)length, compact);
    free(compact);
    *header = text;
    return DPB_OK;
}

static bool write_all(int file, const void *bytes, size_t n)
{
    const char *next = bytes;
    while (n > 0) {
        ssize_t written = write(file, next, n);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        next += written;
        n -= (size_t)written;
    }
    return true;
}

static bool write_file(int file, const char *header, const struct entries *entries, dpb_dtype type)
{
    uint64_t length = strlen(header);
    if (!write_all(file, &length, LENGTH_BYTES) || !write_all(file, header, length))
        return false;
    for (uint32_t i = 0; i < entries->n; i++) {
        const struct entry *entry = &entries->array[i];
        if (!write_all(file, entry->memory, entry->n_elements * dpb_dtype_size(type)))
            return false;
    }
    return fsync(file) == 0;
}

/* The rename is on disk only once the directory is. */
static bool sync_directory_of(const char *path)
{
    char *directory = strdup(path);
    if (!directory)
        return false;
    char *slash = strrchr(directory, '/');
    if (slash)
        slash[slash == directory ? 1 : 0] = '\0';
    int file = open(slash ? directory : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(directory);
    if (file < 0)
        return false;
    bool synced = fsync(file) == 0 || errno == EINVAL; /* EINVAL: nothing to sync there */
    close(file);
    return synced;
}

/* Writes the whole file under another name and puts it in place; an old file stays until then. */
static dpb_status replace_file(const char *path, const char *header, const struct entries *entries,
                               dpb_dtype type)
{
    char temporary[PATH_MAX];
    int length = snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof temporary)
        return dpb_fail(DPB_IO, "%s: the path is too long", path);
    int file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file < 0)
        return dpb_fail(DPB_IO, "%s: cannot be written: %s; choose another checkpoint.save",
                        temporary, strerror(errno));
    bool written = write_file(file, header, entries, type);
    int error = errno;
    if (close(file) != 0 && written) {
        written = false;
        error = errno;
    }
    if (written && rename(temporary, path) != 0) {
        written = false;
        error = errno;
    }
    if (!written) {
        unlink(temporary);
        return dpb_fail(DPB_IO, "%s: writing the checkpoint failed: %s; an older file is unchanged",
                        path, strerror(error));
    }
    if (!sync_directory_of(path))
        return dpb_fail(DPB_IO, "%s: is in place, but its directory cannot be synced: %s", path,
                        strerror(errno));
    return DPB_OK;
}

dpb_status dpb_checkpoint_save(const char *path, const struct dpb_graph *graph, dpb_dtype type,
                               const void *weights, const void *state, const char *const *metadata)
{
    struct entries entries;
    char *header = NULL;
    /* The entries serve both ways; saving only reads through them. */
    dpb_status status = entries_open(graph, type, (void *)weights, (void *)state, &entries);
    if (status == DPB_OK)
        status = make_header(path, &entries, type, metadata, &header);
    if (status == DPB_OK)
        status = replace_file(path, header, &entries, type);
    free(header);
    entries_close(&entries);
    return status;
}

/* --------------------------------------------------------------------------------------- loading
 */

struct source {
    const char *path;
    int file;
    uint64_t data, data_bytes; /* where the tensors begin, and their length */
    json_t *header;
};

static dpb_status read_at(const struct source *source, void *bytes, uint64_t n, uint64_t offset)
{
    char *next = bytes;
    while (n > 0) {
        size_t part = n < SSIZE_MAX ? (size_t)n : SSIZE_MAX;
        ssize_t got = pread(source->file, next, part, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return dpb_fail(DPB_IO, "%s: reading at byte %" PRIu64 " failed: %s", source->path,
                            offset, strerror(errno));
        if (got == 0)
            return dpb_fail(DPB_DATA, "%s: ends at byte %" PRIu64 ", while it is read",
                            source->path, offset);
        next += got;
        offset += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return DPB_OK;
}

static dpb_status parse_header(struct source *source, uint64_t length)
{
    char *text = malloc(length + 1);
    if (!text)
        return dpb_fail(DPB_NO_MEMORY, "%s: out of memory", source->path);
    dpb_status status = read_at(source, text, length, LENGTH_BYTES);
    if (status == DPB_OK) {
        json_error_t error = {.text = ""};
        source->header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
        if (!source->header)
            status = dpb_fail(DPB_DATA, "%s: byte %d: its header is not JSON: %s", source->path,
                              LENGTH_BYTES + error.position, error.text);
        else if (!json_is_object(source->header))
            status = dpb_fail(DPB_DATA, "%s: its header is not a JSON object", source->path);
    }
    free(text);
    return status;
}

static dpb_status source_open(const char *path, struct source *source)
{
    *source = (struct source){.path = path};
    source->file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe must not hold us up */
    struct stat info;
    if (source->file < 0 || fstat(source->file, &info) != 0)
        return dpb_fail(DPB_DATA, "%s: the checkpoint cannot be read: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return dpb_fail(DPB_DATA, "%s: is not a file", path);
    uint64_t size = (uint64_t)info.st_size, length;
    if (size < LENGTH_BYTES)
        return dpb_fail(DPB_DATA, "%s: has %" PRIu64 " bytes; no safetensors file is that short",
                        path, size);
    DPB_TRY(read_at(source, &length, LENGTH_BYTES, 0));
    if (length > size - LENGTH_BYTES || length > MAX_HEADER)
        return dpb_fail(DPB_DATA,
                        "%s: byte 0: a header of %" PRIu64 " bytes in a file of %" PRIu64
                        " bytes; this is no safetensors file, or a part of one",
                        path, length, size);
    source->data = LENGTH_BYTES + length;
    source->data_bytes = size - source->data;
    return parse_header(source, length);
}

static void source_close(struct source *source)
{
    json_decref(source->header);
    if (source->file >= 0)
        close(source->file);
}

/* Where a tensor of the file lies, from the beginning of the data. */
struct extent {
    uint64_t begin, end;
    const char *name;
};

static dpb_status read_extent(const struct source *source, const char *name, const json_t *value,
                              struct extent *extent)
{
    const json_t *offsets = json_object_get(value, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (!json_is_integer(begin) || !json_is_integer(end) || json_array_size(offsets) != 2)
        return dpb_fail(DPB_DATA, "%s: tensor '%s' has no data_offsets of two whole numbers",
                        source->path, name);
    json_int_t first = json_integer_value(begin), last = json_integer_value(end);
    if (first < 0 || last < first || (uint64_t)last > source->data_bytes)
        return dpb_fail(DPB_DATA,
                        "%s: tensor '%s' lies at bytes %" JSON_INTEGER_FORMAT
                        " to %" JSON_INTEGER_FORMAT " of %" PRIu64
                        " bytes of data; the file is cut off or damaged",
                        source->path, name, first, last, source->data_bytes);
    *extent = (struct extent){(uint64_t)first, (uint64_t)last, name};
    return DPB_OK;
}

static int compare_extents(const void *a, const void *b)
{
    const struct extent *left = a, *right = b;
    if (left->begin != right->begin)
        return left->begin < right->begin ? -1 : 1;
    return (left->end > right->end) - (left->end < right->end);
}

/* The tensors cover the data without gap or overlap, as the format demands. */
static dpb_status check_cover(const struct source *source, const struct extent *extents, size_t n)
{
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        if (extents[i].begin != end)
            return dpb_fail(DPB_DATA,
                            "%s: tensor '%s' begins at byte %" PRIu64
                            " of the data, but the one before it ends at %" PRIu64,
                            source->path, extents[i].name, extents[i].begin, end);
        end = extents[i].end;
    }
    if (end != source->data_bytes)
        return dpb_fail(DPB_DATA,
                        "%s: its tensors end at byte %" PRIu64 " of %" PRIu64 " bytes of data",
                        source->path, end, source->data_bytes);
    return DPB_OK;
}

static dpb_status check_extents(const struct source *source)
{
    struct extent *extents = calloc(json_object_size(source->header) + 1, sizeof *extents);
    if (!extents)
        return dpb_fail(DPB_NO_MEMORY, "%s: out of memory", source->path);
    dpb_status status = DPB_OK;
    size_t n = 0;
    const char *name;
    json_t *value;
    json_object_foreach(source->header, name, value)
    {
        if (status == DPB_OK && strcmp(name, "__metadata__") != 0)
            status = read_extent(source, name, value, &extents[n++]);
    }
    if (status == DPB_OK) {
        qsort(extents, n, sizeof *extents, compare_extents);
        status = check_cover(source, extents, n);
    }
    free(extents);
    return status;
}

/* Type and place of a tensor that the graph wants, once all about it is right. */
static dpb_status find_entry(const struct source *source, const struct entry *entry,
                             dpb_dtype *type, struct extent *extent)
{
    const char *path = source->path, *name = entry->name;
    const json_t *value = json_object_get(source->header, name);
    if (!value)
        return dpb_fail(DPB_DATA, "%s: has no tensor '%s'; is it of another model?", path, name);
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    if (!dtype || (strcmp(dtype, "F32") != 0 && strcmp(dtype, "F64") != 0))
        return dpb_fail(DPB_DATA, "%s: tensor '%s' is of type '%.20s'; F32 and F64 are read", path,
                        name, dtype ? dtype : "");
    *type = strcmp(dtype, "F64") == 0 ? DPB_FP64 : DPB_FP32;

    const json_t *shape = json_object_get(value, "shape");
    bool equal = json_is_array(shape) && json_array_size(shape) == entry->n_dims;
    for (uint32_t k = 0; equal && k < entry->n_dims; k++) {
        const json_t *dim = json_array_get(shape, k);
        equal = json_is_integer(dim) && json_integer_value(dim) == (json_int_t)entry->dims[k];
    }
    if (!equal) {
        char *found = json_dumps(shape, JSON_COMPACT | JSON_ENCODE_ANY);
        char wanted[64] = "";
        for (uint32_t k = 0, used = 0; k < entry->n_dims; k++)
            used += (uint32_t)snprintf(wanted + used, sizeof wanted - used, k ? ",%u" : "%u",
                                       entry->dims[k]);
        dpb_fail(DPB_DATA,
                 "%s: tensor '%s' has shape %.60s, the model's has [%s]; are the "
                 "model's options and classes the same?",
                 path, name, found ? found : "?", wanted);
        free(found);
        return DPB_DATA;
    }
    DPB_TRY(read_extent(source, name, value, extent));
    uint64_t bytes = entry->n_elements * dpb_dtype_size(*type);
    if (extent->end - extent->begin != bytes)
        return dpb_fail(DPB_DATA,
                        "%s: tensor '%s' has %" PRIu64 " bytes; its shape and type need %" PRIu64,
                        path, name, extent->end - extent->begin, bytes);
    return DPB_OK;
}

/* Tensors that are not the model's are left out, but not in silence: PyTorch's counters of batches,
 * which nothing here has a use for, excepted. */
static void warn_of_others(const struct source *source, const struct entries *entries)
{
    const char *name, *first = NULL;
    json_t *value;
    size_t n = 0;
    json_t *known = json_object();
    for (uint32_t i = 0; i < entries->n; i++)
        json_object_set_new(known, entries->array[i].name, json_true());
    json_object_foreach(source->header, name, value)
    {
        static const char counter[] = ".num_batches_tracked";
        size_t length = strlen(name), tail = sizeof counter - 1;
        bool expected = strcmp(name, "__metadata__") == 0 || json_object_get(known, name) ||
                        (length > tail && strcmp(name + length - tail, counter) == 0);
        if (!expected && n++ == 0)
            first = name;
    }
    if (n > 0)
        dpb_warn("checkpoint_other_tensors",
                 "%s: %zu tensors are not the model's and were not read; the first is '%s'",
                 source->path, n, first);
    json_decref(known);
}

static void convert(dpb_dtype to, void *into, dpb_dtype from, const void *bytes, size_t n)
{
    if (to == from)
        memcpy(into, bytes, n * dpb_dtype_size(to));
    else if (to == DPB_FP32)
        for (size_t i = 0; i < n; i++)
            ((float *)into)[i] = (float)((const double *)bytes)[i];
    else
        for (size_t i = 0; i < n; i++)
            ((double *)into)[i] = (double)((const float *)bytes)[i];
}

static dpb_status read_entry(const struct source *source, const struct entry *entry, dpb_dtype type)
{
    enum { CHUNK = 4096 }; /* elements */
    double chunk[CHUNK];
    dpb_dtype from = type;
    struct extent extent;
    DPB_TRY(find_entry(source, entry, &from, &extent));
    uint64_t offset = source->data + extent.begin;
    if (from == type)
        return read_at(source, entry->memory, extent.end - extent.begin, offset);
    for (uint64_t i = 0; i < entry->n_elements; i += CHUNK) {
        uint64_t n = entry->n_elements - i < CHUNK ? entry->n_elements - i : CHUNK;
        DPB_TRY(
            read_at(source, chunk, n * dpb_dtype_size(from), offset + i * dpb_dtype_size(from)));
        convert(type, entry->memory + i * dpb_dtype_size(type), from, chunk, n);
    }
    return DPB_OK;
}

static dpb_status load(const struct source *source, const struct entries *entries,
                       const struct dpb_graph *graph, dpb_dtype type, void *weights, void *state)
{
    DPB_TRY(check_extents(source));
    for (uint32_t i = 0; i < entries->n; i++) {
        dpb_dtype from;
        struct extent extent;
        DPB_TRY(find_entry(source, &entries->array[i], &from, &extent));
    }
    /* From here on only input and output can fail. Gaps between the tensors hold zeros. */
    memset(weights, 0, graph->n_elements * dpb_dtype_size(type));
    if (graph->n_states > 0)
        memset(state, 0, graph->n_state_elements * dpb_dtype_size(type));
    for (uint32_t i = 0; i < entries->n; i++)
        DPB_TRY(read_entry(source, &entries->array[i], type));
    warn_of_others(source, entries);
    return DPB_OK;
}

dpb_status dpb_checkpoint_load(const char *path, const struct dpb_graph *graph, dpb_dtype type,
                               void *weights, void *state)
{
    struct entries entries;
    struct source source = {.file = -1};
    dpb_status status = entries_open(graph, type, weights, state, &entries);
    if (status == DPB_OK)
        status = source_open(path, &source);
    if (status == DPB_OK)
        status = load(&source, &entries, graph, type, weights, state);
    source_close(&source);
    entries_close(&entries);
    return status;
}
