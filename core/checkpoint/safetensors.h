/*
 * safetensors.h - reads and writes files of named tensors: 8 bytes with the header's length, the
 * header in JSON, then the tensors, little endian.
 *
 * A file is written beside its place, synced and renamed. Reading checks the whole header (lengths,
 * offsets, tensors that cover the data) before any tensor. A length that does not fit into the file
 * takes no memory.
 *
 * Format: github.com/huggingface/safetensors, "Format".
 */
#ifndef DPB_CORE_CHECKPOINT_SAFETENSORS_H
#define DPB_CORE_CHECKPOINT_SAFETENSORS_H

#include "dpbench/status.h"
#include "dpbench/types.h"

enum { DPB_SAFETENSORS_DIMS = 4, DPB_SAFETENSORS_PIECE = 1 << 20 /* bytes */ };

/* A tensor and where it lies in memory. */
struct dpb_safetensor {
    const char *name;
    dpb_dtype type;                              /* DPB_FP32 or DPB_FP64 */
    uint32_t n_dims, dims[DPB_SAFETENSORS_DIMS]; /* the file's */
    bool transposed; /* of two dims: memory has the matrix the other way round */
    void *memory;
    /* Writing, where `memory` is NULL: gives the content piece by piece, in order. */
    dpb_status (*fetch)(void *context, void *piece, size_t bytes);
    void *context;
};

/* `metadata`: pairs of strings for the header's __metadata__, ended by NULL; may be NULL. `over`:
 * into the file itself, which must be there: for memory that nobody reads before it is whole. */
dpb_status dpb_safetensors_write(const char *path, const struct dpb_safetensor *tensors, uint32_t n,
                                 const char *const *metadata, bool over);

struct dpb_safetensors; /* a file that is open for reading */

/* DPB_DATA with file and byte for a damaged file. *file is @owned; `path` @borrowed until close. */
dpb_status dpb_safetensors_open(const char *path, struct dpb_safetensors **file);
void dpb_safetensors_close(struct dpb_safetensors *file); /* accepts NULL */

/* NULL: not there. @borrowed until close. */
const char *dpb_safetensors_metadata(const struct dpb_safetensors *file, const char *key);
bool dpb_safetensors_has(const struct dpb_safetensors *file, const char *name);
/* Whether it has a tensor with the name and the shape of `tensor`. */
bool dpb_safetensors_fits(const struct dpb_safetensors *file, const struct dpb_safetensor *tensor);
/* Calls `visit` with the name of each tensor. */
void dpb_safetensors_visit(const struct dpb_safetensors *file,
                           void (*visit)(void *context, const char *name), void *context);
/* The tensor is there, in F64, F32, F16 or BF16, with this shape; else DPB_DATA. */
dpb_status dpb_safetensors_check(const struct dpb_safetensors *file,
                                 const struct dpb_safetensor *tensor);
/* Checks and reads a tensor, converted to its type in memory. */
dpb_status dpb_safetensors_read(const struct dpb_safetensors *file,
                                const struct dpb_safetensor *tensor);
/* Checks two tensors of one shape, and whether the file has the same numbers in both. */
dpb_status dpb_safetensors_equal(const struct dpb_safetensors *file, const struct dpb_safetensor *a,
                                 const struct dpb_safetensor *b, bool *equal);

#endif
