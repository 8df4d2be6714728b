/*
 * tuning_file.h - the fastest choices that were found, in a file.
 *
 * A line of the file is
 *
 *     GPU <tab> library's version <tab> call, type, shapes <tab> rank
 *
 * The rank is a place among the library's plans or algorithms, best first by the library's own
 * estimate. A line is appended by one write as soon as its choice is made. So a run that is cut off
 * keeps its choices, and several processes may share the file. The last of equal keys counts. A key
 * whose choice the library does not offer is tried anew.
 *
 * Processes that share a GPU take turns. Before its first trial a process locks a byte of the file,
 * then reads the lines that others added meanwhile. The byte's number is made from the GPU's
 * address.
 */
#ifndef DPB_CUDA_TUNING_FILE_H
#define DPB_CUDA_TUNING_FILE_H

#include <string.h>

#include "device.h"

enum { TUNING_PATH_BYTES = 4096, TUNING_KEY_BYTES = 256 };

static inline bool cuda_tunes(const struct options *options)
{
    return strcmp(options->tuning, "no") != 0;
}

struct tuning_file {
    const struct device *device;
    char path[TUNING_PATH_BYTES]; /* "": none */
    char *known;                  /* the file's lines, then those that were added; NULL: none */
    int lock;    /* the file with the locked byte; -1: not yet, or it cannot be opened */
    bool trying; /* cuda_tuning_first_trial was called */
    bool full;   /* a line could not be appended: it has warned */
};

/* Reads the file that device.tuning names, which is not "no"; "auto": below the user's cache
 * directory. */
void cuda_tuning_open(const struct device *device, struct tuning_file *file);
/* Before the first trial: blocks until it is this process's turn. True: others may have written
 * since the file was read. */
bool cuda_tuning_first_trial(struct tuning_file *file);
/* The rank in the key's last line; cuda_tuning_known: in the file that device.tuning names. */
bool cuda_tuning_look_up(const struct tuning_file *file, const char *key, int *rank);
/* Appends the rank, or warns, once, that it cannot. Call it after cuda_tuning_first_trial. */
dpb_status cuda_tuning_add(struct tuning_file *file, const char *key, int rank);
bool cuda_tuning_known(const struct device *device, const char *key, int *rank);
void cuda_tuning_close(struct tuning_file *file);

#endif
