/*
 * merge_axes.h - private to merge.c and merge_axes.c: the runs of a merge (merge.h) and its axes.
 */
#ifndef DPB_STUDY_TABLE_MERGE_AXES_H
#define DPB_STUDY_TABLE_MERGE_AXES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpbench/status.h"

/* One timing run. */
struct dpb_merge_item {
    json_t *run; /* @owned: a copy, which gets its place in the merged document */
    size_t source, order;
    double cell;       /* its cell in its source; 0 where it has none */
    int64_t repeat;    /* likewise */
    size_t own, setup; /* among those of its source, and of all */
    size_t *at, n_at;  /* @borrowed: by axis, the number of its value, from 1; 0: it has none */
};

/* A sweep, or a run outside any sweep. */
struct dpb_merge_source {
    const char *file; /* @borrowed */
    bool kept;        /* runs of a sweep's directory, given one by one */
    int64_t repeats;  /* of its own */
    int64_t first;    /* the number that its first repeat has in the merged document */
    json_t *settings; /* @owned: SECTION.KEY: value, of the first run that has it */
    json_t *defaults; /* @owned: SECTION.KEY: true, of settings left unset */
    json_t *of_cells; /* @owned: its axes, as the members of an object */
    json_t *setups;   /* @owned: as of dpb_setups_within */
    json_t *facts;    /* @owned: by these, the machine and software of its runs */
};

struct dpb_merge {
    struct dpb_merge_item *items; /* @owned */
    size_t n_items, capacity;
    struct dpb_merge_source *sources; /* @owned */
    size_t n_sources;
    size_t *places;    /* @owned: all that items point at */
    json_t *axes;      /* @owned: KEY: [{label, value}] */
    json_t *over;      /* @owned: KEY: [label] settings in which repeats differ */
    json_t *followers; /* @owned: KEY: true, of settings that other axes may decide */
    json_t *setups;    /* @owned: as of dpb_setups_add */
    json_t *accuracy;  /* @owned: the accuracy runs */
    json_t *settings;  /* @owned: KEY: value, of settings that some results lack */
    size_t n_twice;    /* runs that were given before */
    const char *pool;  /* @borrowed: see dpb_merge */
    bool has_columns;  /* it has axes that the sweeps do not have */
};

enum { DPB_MERGE_REPEATS = 1000 }; /* of one sweep, as sweep.repeats */
/* Whether the run names its cell and repeat of a sweep. */
bool dpb_merge_is_of_sweep(const json_t *run);

/* Fills settings and of_cells of the sources, and the keys of `over` and followers. */
void dpb_merge_learn(struct dpb_merge *merge);
/* DPB_USAGE, with the first difference: the results are of different models. */
dpb_status dpb_merge_refuse_models(const struct dpb_merge *merge);
/* Fills axes, over and settings; items have their setups. */
void dpb_merge_find_axes(struct dpb_merge *merge);
/* The number of the item's value among those of an axis, from 1; 0: it has no such setting. */
size_t dpb_merge_value(const json_t *values, const struct dpb_merge_item *item, const char *key);

#endif
