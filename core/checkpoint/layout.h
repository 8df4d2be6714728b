/*
 * layout.h - the names and dimensions that a graph's tensors have in files that others publish of
 * the model (dpbench/model.h).
 *
 * A name may stand behind "module.", which PyTorch's DistributedDataParallel adds, and then behind
 * the layout's prefix. A *key* is a name without them.
 */
#ifndef DPB_CORE_CHECKPOINT_LAYOUT_H
#define DPB_CORE_CHECKPOINT_LAYOUT_H

#include <jansson.h>

#include "checkpoint/safetensors.h"
#include "dpbench/model.h"

enum { DPB_LAYOUT_KEY = 256 /* bytes at most, with its NUL */ };

/* Looks for a layout by its name among dpbench's own, which is NULL, and `other`, which may be
 * NULL. */
bool dpb_layout_find(const struct dpb_file_layout *other, const char *name,
                     const struct dpb_file_layout **layout);

/* Gives the layout's key and dims to a tensor of `node` whose name ends in `suffix`, as in
 * ".weight". *tensor has the graph's dims before. DPB_UNSUPPORTED if the layout has no such
 * layer. */
dpb_status dpb_layout_apply(const struct dpb_file_layout *layout, const char *node,
                            const char *suffix, char key[DPB_LAYOUT_KEY],
                            struct dpb_safetensor *tensor);
/* Whether files of the layout, which may be NULL, have a tensor of this key that is not read. */
bool dpb_layout_skips(const struct dpb_file_layout *layout, const char *key);

/* The names of a file by their keys: an array of names each. @owned; NULL: out of memory. */
json_t *dpb_layout_names(const struct dpb_file_layout *layout, const struct dpb_safetensors *file);
const char *dpb_layout_key_of(const struct dpb_file_layout *layout, const char *name);

#endif
