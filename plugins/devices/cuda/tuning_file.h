/*
 * tuning_file.h - what was found to be fastest, in a file.
 *
 * A line of the file is
 *
 *     GPU <tab> library's version <tab> call, type, shapes <tab> rank
 *
 * The rank is that of a plan or algorithm among what the library offers, best first by its own
 * estimate; of a convolution with sums (conv_fused.c) -1: alone is faster. A line is appended by
 * one write as soon as its choice is made, so a run that is cut off keeps what it has found, and
 * several processes may share the file; of equal keys the last counts. What the file names and the
 * library does not offer is tried anew.
 *
 * Processes that share a GPU take turns: before its first trial one locks a byte of the file, whose
 * number is made of the GPU's address, and reads again what the others have found meanwhile.
 */
#ifndef DPB_CUDA_TUNING_FILE_H
#define DPB_CUDA_TUNING_FILE_H

#include <fcntl.h>

#include "products.h"

enum { TUNING_PATH_BYTES = 4096 };

struct tuning_file {
    const struct device *device;
    char path[TUNING_PATH_BYTES]; /* "": none */
    char *known;                  /* the file's content */
    char *found;                  /* lines that were added; NULL: none yet */
    size_t found_bytes, found_capacity;
    int lock;    /* the file, of which a byte is locked; -1: not yet, or it cannot be opened */
    bool trying; /* it has been asked for */
    bool full;   /* a line could not be appended, which was said */
};

/* The file that device.tuning names, which is not "no"; "auto": below the user's cache directory.
 * "": there is none. */
void cuda_tuning_path(const struct options *options, char path[TUNING_PATH_BYTES]);
/* Reads that file. */
void cuda_tuning_open(const struct device *device, struct tuning_file *file);
/* Before the first trial: blocks until it is this process's turn. True: others may have written
 * since the file was read. */
bool cuda_tuning_first_trial(struct tuning_file *file);
/* The rank of the key: the one that was added, or else of its last line. */
bool cuda_tuning_look_up(const struct tuning_file *file, const char *key, int *rank);
/* Appends it to the file, or warns, once, that it cannot. After cuda_tuning_first_trial. */
dpb_status cuda_tuning_add(struct tuning_file *file, const char *key, int rank);
void cuda_tuning_close(struct tuning_file *file);

/* The lock of a byte of an open file, once no other process holds it; the launcher sees meanwhile
 * that this rank is alive. False: not within `limit_ns`, or errno says why it cannot be had. */
bool cuda_await_lock(int fd, struct flock *byte, int64_t limit_ns);

#endif
