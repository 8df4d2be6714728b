/* safetensors.c - see safetensors.h. */
#include "checkpoint/safetensors.h"

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

#include "base/each.h"
#include "base/file.h"
#include "base/log.h"
#include "base/output.h"
#include "base/vec.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are written as they lie");
_Static_assert(sizeof(off_t) == 8, "files are larger than 2 GiB");

enum { LENGTH_BYTES = 8, MAX_HEADER = 100 * 1000 * 1000 /* the format's own limit */ };

static const char *const type_names[] = {
    [DPB_FP64] = "F64", [DPB_FP32] = "F32", [DPB_BF16] = "BF16", [DPB_FP16] = "F16", NULL};

static bool is_metadata(const char *name)
{
    return strcmp(name, "__metadata__") == 0;
}

static uint64_t elements_of(const struct dpb_safetensor *tensor)
{
    uint64_t n = 1;
    for (uint32_t k = 0; k < tensor->n_dims; k++)
        n *= tensor->dims[k];
    return n;
}

static uint64_t bytes_of(const struct dpb_safetensor *tensor)
{
    return elements_of(tensor) * dpb_dtype_size(tensor->type);
}

/* Moves n elements of a transposed tensor, from `first` on in the file's order, between its memory
 * and `piece`. */
static void move_transposed(const struct dpb_safetensor *tensor, uint64_t first, uint64_t n,
                            void *piece, bool reads)
{
    const uint64_t rows = tensor->dims[0], columns = tensor->dims[1];
    const size_t size = dpb_dtype_size(tensor->type);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t at = (first + i) % columns * rows + (first + i) / columns;
        char *inside = (char *)tensor->memory + at * size, *outside = (char *)piece + i * size;
        memcpy(reads ? inside : outside, reads ? outside : inside, size);
    }
}

/* ---- writing ------------------------------------------------------------------------------- */

static json_t *metadata_to_json(const char *const *metadata)
{
    json_t *object = json_object();
    for (; metadata && metadata[0]; metadata += 2)
        json_object_set_new(object, metadata[0], json_string(metadata[1]));
    return object;
}

/* The header as text, padded with spaces so that the tensors begin at a multiple of 8 bytes. */
static dpb_status make_header(const char *path, const struct dpb_safetensor *tensors, uint32_t n,
                              const char *const *metadata, char **header)
{
    json_t *root = json_object();
    if (metadata)
        json_object_set_new(root, "__metadata__", metadata_to_json(metadata));
    uint64_t offset = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct dpb_safetensor *tensor = &tensors[i];
        uint64_t end = offset + bytes_of(tensor);
        json_t *shape = json_array();
        for (uint32_t k = 0; k < tensor->n_dims; k++)
            json_array_append_new(shape, json_integer((json_int_t)tensor->dims[k]));
        json_object_set_new(root, tensor->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", type_names[tensor->type],
                                      "shape", shape, "data_offsets", (json_int_t)offset,
                                      (json_int_t)end));
        offset = end;
    }
    char *compact = json_dumps(root, JSON_COMPACT);
    size_t expected = n + (metadata ? 1u : 0u);
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

/* DPB_IO: see errno; another status has its message. */
static dpb_status write_pieces(int file, const struct dpb_safetensor *tensor)
{
    dpb_status status = DPB_OK;
    const uint64_t all = bytes_of(tensor), element = dpb_dtype_size(tensor->type);
    uint64_t rest = all;
    void *piece = malloc(DPB_SAFETENSORS_PIECE);
    if (!piece)
        return dpb_fail(DPB_NO_MEMORY, "no memory for a piece of tensor '%s'", tensor->name);
    while (rest > 0 && status == DPB_OK) {
        size_t n = rest < DPB_SAFETENSORS_PIECE ? rest : DPB_SAFETENSORS_PIECE;
        if (tensor->memory)
            move_transposed(tensor, (all - rest) / element, n / element, piece, false);
        else
            status = tensor->fetch(tensor->context, piece, n);
        if (status == DPB_OK && !dpb_write_all(file, piece, n))
            status = DPB_IO;
        rest -= n;
    }
    free(piece);
    return status;
}

static dpb_status write_file(int file, const char *header, const struct dpb_safetensor *tensors,
                             uint32_t n)
{
    uint64_t length = strlen(header);
    if (!dpb_write_all(file, &length, LENGTH_BYTES) || !dpb_write_all(file, header, length))
        return DPB_IO;
    for (uint32_t i = 0; i < n; i++)
        if (tensors[i].transposed || (!tensors[i].memory && tensors[i].fetch))
            DPB_TRY(write_pieces(file, &tensors[i]));
        else if (!dpb_write_all(file, tensors[i].memory, bytes_of(&tensors[i])))
            return DPB_IO;
    return DPB_OK;
}

/* Writes the whole file under another name and puts it in place; an old file stays until then. */
static dpb_status replace_file(const char *path, const char *header,
                               const struct dpb_safetensor *tensors, uint32_t n)
{
    struct dpb_output output;
    DPB_TRY(dpb_output_open(path, &output));
    dpb_status status = write_file(output.fd, header, tensors, n);
    const int error = errno;
    if (status == DPB_OK)
        return dpb_output_keep(&output);
    dpb_output_drop(&output);
    return status == DPB_IO
               ? dpb_fail(DPB_IO,
                          "%s: writing the checkpoint failed: %s; an older file is unchanged", path,
                          strerror(error))
               : status;
}

static dpb_status write_over(const char *path, const char *header,
                             const struct dpb_safetensor *tensors, uint32_t n)
{
    const int file = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    const dpb_status status = file < 0 ? DPB_IO : write_file(file, header, tensors, n);
    const int error = errno;
    if (file >= 0)
        close(file);
    return status != DPB_IO
               ? status
               : dpb_fail(DPB_IO, "%s: writing the checkpoint failed: %s", path, strerror(error));
}

dpb_status dpb_safetensors_write(const char *path, const struct dpb_safetensor *tensors, uint32_t n,
                                 const char *const *metadata, bool over)
{
    char *header = NULL;
    DPB_TRY(make_header(path, tensors, n, metadata, &header));
    dpb_status status = (over ? write_over : replace_file)(path, header, tensors, n);
    free(header);
    return status;
}

/* ---- opening ------------------------------------------------------------------------------- */

struct dpb_safetensors {
    const char *path;
    int fd;
    uint64_t data, data_bytes; /* where the tensors begin, and their length */
    json_t *header;
};

static dpb_status read_at(const struct dpb_safetensors *file, void *bytes, uint64_t n,
                          uint64_t offset)
{
    char *next = bytes;
    while (n > 0) {
        size_t part = n < SSIZE_MAX ? (size_t)n : SSIZE_MAX;
        ssize_t got = pread(file->fd, next, part, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return dpb_fail(DPB_IO, "%s: reading at byte %" PRIu64 " failed: %s", file->path,
                            offset, strerror(errno));
        if (got == 0)
            return dpb_fail(DPB_DATA, "%s: ends at byte %" PRIu64 ", while it is read", file->path,
                            offset);
        next += got;
        offset += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return DPB_OK;
}

static dpb_status parse_header(struct dpb_safetensors *file, uint64_t length)
{
    char *text = malloc(length + 1);
    if (!text)
        return dpb_fail(DPB_NO_MEMORY, "%s: out of memory", file->path);
    dpb_status status = read_at(file, text, length, LENGTH_BYTES);
    if (status == DPB_OK) {
        json_error_t error = {.text = ""};
        file->header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
        if (!file->header)
            status = dpb_fail(DPB_DATA, "%s: byte %d: its header is not JSON: %s", file->path,
                              LENGTH_BYTES + error.position, error.text);
        else if (!json_is_object(file->header))
            status = dpb_fail(DPB_DATA, "%s: its header is not a JSON object", file->path);
    }
    free(text);
    return status;
}

static dpb_status read_header(struct dpb_safetensors *file)
{
    const char *path = file->path;
    file->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe must not block the open */
    struct stat info;
    if (file->fd < 0 || fstat(file->fd, &info) != 0)
        return dpb_fail(DPB_DATA, "%s: the checkpoint cannot be read: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return dpb_fail(DPB_DATA, "%s: is not a file", path);
    uint64_t size = (uint64_t)info.st_size, length;
    if (size < LENGTH_BYTES)
        return dpb_fail(DPB_DATA, "%s: has %" PRIu64 " bytes; no safetensors file is that short",
                        path, size);
    DPB_TRY(read_at(file, &length, LENGTH_BYTES, 0));
    if (length > size - LENGTH_BYTES || length > MAX_HEADER)
        return dpb_fail(DPB_DATA,
                        "%s: byte 0: a header of %" PRIu64 " bytes in a file of %" PRIu64
                        " bytes; this is no safetensors file, or a part of one",
                        path, length, size);
    file->data = LENGTH_BYTES + length;
    file->data_bytes = size - file->data;
    return parse_header(file, length);
}

/* Where a tensor of the file lies, from the beginning of the data. */
struct extent {
    uint64_t begin, end;
    const char *name;
};

static dpb_status read_extent(const struct dpb_safetensors *file, const char *name,
                              const json_t *value, struct extent *extent)
{
    const json_t *offsets = json_object_get(value, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (!json_is_integer(begin) || !json_is_integer(end) || json_array_size(offsets) != 2)
        return dpb_fail(DPB_DATA, "%s: tensor '%s' has no data_offsets of two whole numbers",
                        file->path, name);
    json_int_t first = json_integer_value(begin), last = json_integer_value(end);
    if (first < 0 || last < first || (uint64_t)last > file->data_bytes)
        return dpb_fail(DPB_DATA,
                        "%s: tensor '%s' lies at bytes %" JSON_INTEGER_FORMAT
                        " to %" JSON_INTEGER_FORMAT " of %" PRIu64
                        " bytes of data; the file is cut off or damaged",
                        file->path, name, first, last, file->data_bytes);
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
static dpb_status check_cover(const struct dpb_safetensors *file, const struct extent *extents,
                              size_t n)
{
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        if (extents[i].begin != end)
            return dpb_fail(DPB_DATA,
                            "%s: tensor '%s' begins at byte %" PRIu64
                            " of the data, but the one before it ends at %" PRIu64,
                            file->path, extents[i].name, extents[i].begin, end);
        end = extents[i].end;
    }
    if (end != file->data_bytes)
        return dpb_fail(DPB_DATA,
                        "%s: its tensors end at byte %" PRIu64 " of %" PRIu64 " bytes of data",
                        file->path, end, file->data_bytes);
    return DPB_OK;
}

static dpb_status check_extents(const struct dpb_safetensors *file)
{
    struct extent *extents = calloc(json_object_size(file->header) + 1, sizeof *extents);
    if (!extents)
        return dpb_fail(DPB_NO_MEMORY, "%s: out of memory", file->path);
    dpb_status status = DPB_OK;
    size_t n = 0;
    dpb_each_member(file->header, name, value)
        if (status == DPB_OK && !is_metadata(name))
            status = read_extent(file, name, value, &extents[n++]);
    if (status == DPB_OK) {
        qsort(extents, n, sizeof *extents, compare_extents);
        status = check_cover(file, extents, n);
    }
    free(extents);
    return status;
}

dpb_status dpb_safetensors_open(const char *path, struct dpb_safetensors **file)
{
    struct dpb_safetensors *made = malloc(sizeof *made);
    if (!made)
        return dpb_fail(DPB_NO_MEMORY, "%s: out of memory", path);
    *made = (struct dpb_safetensors){.path = path, .fd = -1};
    dpb_status status = read_header(made);
    DPB_THEN(status, check_extents(made));
    if (status != DPB_OK) {
        dpb_safetensors_close(made);
        return status;
    }
    *file = made;
    return DPB_OK;
}

void dpb_safetensors_close(struct dpb_safetensors *file)
{
    if (!file)
        return;
    json_decref(file->header);
    if (file->fd >= 0)
        close(file->fd);
    free(file);
}

/* ---- reading ------------------------------------------------------------------------------- */

const char *dpb_safetensors_metadata(const struct dpb_safetensors *file, const char *key)
{
    return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}

bool dpb_safetensors_has(const struct dpb_safetensors *file, const char *name)
{
    return json_object_get(file->header, name) && !is_metadata(name);
}

void dpb_safetensors_visit(const struct dpb_safetensors *file,
                           void (*visit)(void *context, const char *name), void *context)
{
    dpb_each_member(file->header, name, value)
        if (!is_metadata(name))
            visit(context, name);
}

static bool has_shape(const json_t *value, const struct dpb_safetensor *tensor)
{
    const json_t *shape = json_object_get(value, "shape");
    bool equal = json_is_array(shape) && json_array_size(shape) == tensor->n_dims;
    for (uint32_t k = 0; equal && k < tensor->n_dims; k++) {
        const json_t *dim = json_array_get(shape, k);
        equal = json_is_integer(dim) && json_integer_value(dim) == (json_int_t)tensor->dims[k];
    }
    return equal;
}

bool dpb_safetensors_fits(const struct dpb_safetensors *file, const struct dpb_safetensor *tensor)
{
    return dpb_safetensors_has(file, tensor->name) &&
           has_shape(json_object_get(file->header, tensor->name), tensor);
}

/* Finds a wanted tensor and checks its type, shape and length. */
static dpb_status find(const struct dpb_safetensors *file, const struct dpb_safetensor *tensor,
                       dpb_dtype *type, struct extent *extent)
{
    const char *path = file->path, *name = tensor->name;
    const json_t *value = json_object_get(file->header, name);
    if (!value)
        return dpb_fail(DPB_DATA, "%s: has no tensor '%s'; is it of another model?", path, name);
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    for (*type = 0; type_names[*type] && (!dtype || strcmp(dtype, type_names[*type]) != 0);)
        ++*type;
    if (!type_names[*type])
        return dpb_fail(DPB_DATA,
                        "%s: tensor '%s' is of type '%.20s'; F64, F32, F16 and BF16 are read", path,
                        name, dtype ? dtype : "");
    if (!has_shape(value, tensor)) {
        char *found = json_dumps(json_object_get(value, "shape"), JSON_COMPACT | JSON_ENCODE_ANY);
        char wanted[64] = "";
        for (uint32_t k = 0, used = 0; k < tensor->n_dims; k++)
            used += (uint32_t)snprintf(wanted + used, sizeof wanted - used, k ? ",%u" : "%u",
                                       tensor->dims[k]);
        dpb_fail(DPB_DATA,
                 "%s: tensor '%s' has shape %.60s, the model's has [%s]; are the "
                 "model's options and classes the same?",
                 path, name, found ? found : "?", wanted);
        free(found);
        return DPB_DATA;
    }
    DPB_TRY(read_extent(file, name, value, extent));
    uint64_t bytes = elements_of(tensor) * dpb_dtype_size(*type);
    if (extent->end - extent->begin != bytes)
        return dpb_fail(DPB_DATA,
                        "%s: tensor '%s' has %" PRIu64 " bytes; its shape and type need %" PRIu64,
                        path, name, extent->end - extent->begin, bytes);
    return DPB_OK;
}

dpb_status dpb_safetensors_check(const struct dpb_safetensors *file,
                                 const struct dpb_safetensor *tensor)
{
    dpb_dtype type;
    struct extent extent;
    return find(file, tensor, &type, &extent);
}

enum { CHUNK = 4096 /* elements that are converted at a time */ };

static uint64_t chunk_at(const struct dpb_safetensor *tensor, uint64_t first)
{
    const uint64_t rest = elements_of(tensor) - first;
    return rest < CHUNK ? rest : CHUNK;
}

/* Reads n elements, at most CHUNK, of a tensor that is of type `from`, and converts them. */
static dpb_status read_chunk(const struct dpb_safetensors *file, const struct extent *extent,
                             dpb_dtype from, uint64_t first, uint64_t n, dpb_dtype to, void *into)
{
    double raw[CHUNK]; /* of the largest type */
    const size_t size = dpb_dtype_size(from);
    DPB_TRY(read_at(file, raw, n * size, file->data + extent->begin + first * size));
    dpb_vec.cast(to, into, from, raw, n);
    return DPB_OK;
}

dpb_status dpb_safetensors_read(const struct dpb_safetensors *file,
                                const struct dpb_safetensor *tensor)
{
    double converted[CHUNK];
    dpb_dtype type = tensor->type, from = type;
    struct extent extent;
    DPB_TRY(find(file, tensor, &from, &extent));
    if (from == type && !tensor->transposed)
        return read_at(file, tensor->memory, extent.end - extent.begin, file->data + extent.begin);
    for (uint64_t i = 0, n; i < elements_of(tensor); i += n) {
        n = chunk_at(tensor, i);
        void *place = (char *)tensor->memory + i * dpb_dtype_size(type);
        void *into = tensor->transposed ? converted : place;
        DPB_TRY(read_chunk(file, &extent, from, i, n, type, into));
        if (tensor->transposed)
            move_transposed(tensor, i, n, converted, true);
    }
    return DPB_OK;
}

dpb_status dpb_safetensors_equal(const struct dpb_safetensors *file, const struct dpb_safetensor *a,
                                 const struct dpb_safetensor *b, bool *equal)
{
    const struct dpb_safetensor *const both[2] = {a, b};
    double values[2][CHUNK];
    dpb_dtype types[2];
    struct extent extents[2];
    for (int k = 0; k < 2; k++)
        DPB_TRY(find(file, both[k], &types[k], &extents[k]));
    *equal = true;
    for (uint64_t i = 0, n; i < elements_of(a) && *equal; i += n) {
        n = chunk_at(a, i);
        for (int k = 0; k < 2; k++)
            DPB_TRY(read_chunk(file, &extents[k], types[k], i, n, DPB_FP64, values[k]));
        *equal = memcmp(values[0], values[1], n * sizeof values[0][0]) == 0;
    }
    return DPB_OK;
}
