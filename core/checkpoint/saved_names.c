/* saved_names.c - see saved_names.h. */
#include "checkpoint/saved_names.h"

#include <stdio.h>

#include "checkpoint/checkpoint.h"

struct dpb_safetensor dpb_saved_tensor(const char *comm, const struct dpb_saved_array *array,
                                       uint32_t rank, char name[DPB_SAVED_NAME])
{
    int n = snprintf(name, DPB_SAVED_NAME, DPB_CHECKPOINT_COMM "%s.%s", comm, array->name);
    if (!array->common && n < DPB_SAVED_NAME)
        snprintf(name + n, DPB_SAVED_NAME - (size_t)n, ".%u", rank);
    return (struct dpb_safetensor){.name = name,
                                   .type = array->type,
                                   .n_dims = 1,
                                   .dims = {(uint32_t)array->n_elements},
                                   .memory = array->memory};
}

/* comm.STRATEGY.ARRAY or comm.STRATEGY.ARRAY.RANK; false: another tensor's name. */
struct saved_name {
    char comm[64], array[64];
    bool common;
    uint32_t rank;
};

static bool parse(const char *name, struct saved_name *parsed)
{
    int n = sscanf(name, DPB_CHECKPOINT_COMM "%63[a-z0-9_].%63[a-z0-9_].%9u", parsed->comm,
                   parsed->array, &parsed->rank);
    parsed->common = n == 2;
    return n >= 2;
}

static void count_ranks(void *context, const char *name)
{
    struct dpb_lost *lost = context;
    struct saved_name parsed;
    if (!parse(name, &parsed) || strcmp(parsed.comm, lost->comm) != 0)
        return;
    lost->n_own++;
    if (!parsed.common && parsed.rank >= lost->n_ranks)
        lost->n_ranks = parsed.rank + 1;
}

static bool keeps(const struct dpb_lost *lost, const struct saved_name *parsed)
{
    if (strcmp(parsed->comm, lost->comm) != 0 ||
        (!parsed->common && lost->n_ranks != lost->n_workers))
        return false;
    bool listed = !lost->saved;
    for (uint32_t i = 0; lost->saved && i < lost->saved->n; i++) {
        const struct dpb_saved_array *array = &lost->saved->arrays[i];
        char name[DPB_SAVED_NAME];
        const struct dpb_safetensor tensor =
            dpb_saved_tensor(lost->comm, array, parsed->rank, name);
        listed =
            listed || (strcmp(array->name, parsed->array) == 0 && array->common == parsed->common &&
                       dpb_safetensors_fits(lost->file, &tensor));
    }
    return listed;
}

static void count_lost(void *context, const char *name)
{
    struct dpb_lost *lost = context;
    struct saved_name parsed;
    if (parse(name, &parsed) && !keeps(lost, &parsed) && lost->n++ == 0)
        snprintf(lost->first, sizeof lost->first, "%s", name);
}

void dpb_lost_look(struct dpb_lost *lost)
{
    dpb_safetensors_visit(lost->file, count_ranks, lost);
    dpb_safetensors_visit(lost->file, count_lost, lost);
}
