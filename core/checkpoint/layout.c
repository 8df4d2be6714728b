/* layout.c - see layout.h. */
#include "checkpoint/layout.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/text.h"

bool dpb_layout_find(const struct dpb_file_layout *other, const char *name,
                     const struct dpb_file_layout **layout)
{
    const bool own = strcmp(name, "dpbench") == 0;
    *layout = own ? NULL : other;
    return own || (other && strcmp(other->name, name) == 0);
}

/* ---- from a node to a key ------------------------------------------------------------------ */

/* Whether `text` is `pattern` with a number in place of '#'. */
static bool matches(const char *pattern, const char *text, uint64_t *number)
{
    const size_t before = strcspn(pattern, "#");
    char *end;
    *number = 0;
    if (pattern[before] == '\0')
        return strcmp(pattern, text) == 0;
    if (strncmp(pattern, text, before) != 0 || !isdigit((unsigned char)text[before]))
        return false;
    *number = strtoull(text + before, &end, 10);
    return strcmp(end, pattern + before + 1) == 0;
}

static const struct dpb_file_layer *layer_of(const struct dpb_file_layout *layout, const char *node,
                                             uint64_t *number)
{
    for (const struct dpb_file_layer *layer = layout->layers; layer->name; layer++)
        if (layer->node && matches(layer->node, node, number))
            return layer;
    return NULL;
}

/* A window of 1 x 1 has no dims, and a transposed matrix has its dims the other way round. */
static bool set_dims(const struct dpb_file_layer *layer, struct dpb_safetensor *tensor)
{
    uint32_t *dims = tensor->dims;
    if (tensor->n_dims == 4 && dims[2] == 1 && dims[3] == 1)
        tensor->n_dims = 2;
    if (!layer->transposed || tensor->n_dims == 1)
        return true;
    tensor->transposed = true;
    const uint32_t rows = dims[0];
    dims[0] = dims[1];
    dims[1] = rows;
    return tensor->n_dims == 2;
}

dpb_status dpb_layout_apply(const struct dpb_file_layout *layout, const char *node,
                            const char *suffix, char key[DPB_LAYOUT_KEY],
                            struct dpb_safetensor *tensor)
{
    uint64_t number;
    const struct dpb_file_layer *layer = layer_of(layout, node, &number);
    const int before = layer ? (int)strcspn(layer->name, "#") : 0;
    int length = DPB_LAYOUT_KEY;
    if (layer && layer->name[before] == '#')
        length = snprintf(key, DPB_LAYOUT_KEY, "%.*s%" PRIu64 "%s%s", before, layer->name,
                          number - 1, layer->name + before + 1, suffix);
    else if (layer)
        length = snprintf(key, DPB_LAYOUT_KEY, "%s%s", layer->name, suffix);
    if (length >= DPB_LAYOUT_KEY || !set_dims(layer, tensor))
        return dpb_fail(DPB_UNSUPPORTED,
                        "layout '%s' of the model's files has no place for node '%s'; complete its "
                        "table in the model's plugin",
                        layout->name, node);
    tensor->name = key;
    return DPB_OK;
}

/* ---- from a file's name to its key --------------------------------------------------------- */

bool dpb_layout_skips(const struct dpb_file_layout *layout, const char *key)
{
    uint64_t number;
    bool skips = false;
    for (const struct dpb_file_layer *layer = layout ? layout->layers : NULL;
         layer && layer->name && !skips; layer++)
        skips = !layer->node && matches(layer->name, key, &number);
    return skips;
}

const char *dpb_layout_key_of(const struct dpb_file_layout *layout, const char *name)
{
    const char *const prefixes[] = {"module.", layout && layout->prefix ? layout->prefix : ""};
    for (size_t i = 0; i < 2; i++)
        if (dpb_begins_with(name, prefixes[i]))
            name += strlen(prefixes[i]);
    return name;
}

struct naming {
    const struct dpb_file_layout *layout;
    json_t *names;
    bool failed;
};

static void add_name(void *context, const char *name)
{
    struct naming *naming = context;
    const char *key = dpb_layout_key_of(naming->layout, name);
    if (!json_object_get(naming->names, key))
        naming->failed |= json_object_set_new(naming->names, key, json_array()) != 0;
    naming->failed |=
        json_array_append_new(json_object_get(naming->names, key), json_string(name)) != 0;
}

json_t *dpb_layout_names(const struct dpb_file_layout *layout, const struct dpb_safetensors *file)
{
    struct naming naming = {.layout = layout, .names = json_object()};
    dpb_safetensors_visit(file, add_name, &naming);
    if (!naming.failed)
        return naming.names;
    json_decref(naming.names);
    return NULL;
}
